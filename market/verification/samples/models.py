"""Tables of verification: windows of committed units, drawn samples, late states, replays and penalties."""

from datetime import datetime

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Address, Base, Cid, CreatedAt, Hash32, UtcDateTime


class Sample(Base, CreatedAt):
    """One drawn segment of one unit: passed when a replay agrees, failed when two verifiers say it is wrong."""

    __tablename__ = "samples"
    __table_args__ = (UniqueConstraint("unit_id", "segment"), Index("ix_samples_state_cid", "state_cid"))

    id: Mapped[int] = mapped_column(primary_key=True)
    unit_id: Mapped[int] = mapped_column(ForeignKey("units.id"), index=True)
    segment: Mapped[int] = mapped_column(Integer)
    status: Mapped[str] = mapped_column(String(16), index=True)  # lifecycle.SampleStatus
    reason: Mapped[str | None] = mapped_column(String(64))
    state_cid: Mapped[str | None] = mapped_column(Cid)  # start state on storage (None: segment 0's, or released)
    reveal_lease_id: Mapped[str | None] = mapped_column(String(36))  # on offer to the provider now
    reveal_deadline_at: Mapped[datetime | None] = mapped_column(UtcDateTime)  # when it is due
    reveal_until_at: Mapped[datetime | None] = mapped_column(UtcDateTime)  # until when it is taken late
    refusal: Mapped[str | None] = mapped_column(String(64))  # code by which the provider said no, if it did at last
    canary_due: Mapped[bool] = mapped_column(Boolean, default=False, server_default=false())  # to be planted on it
    inner_step: Mapped[int | None] = mapped_column(Integer)  # of a first segment: the state after it is asked for too
    inner_nonce: Mapped[str | None] = mapped_column(Hash32)  # for the digest of that state
    second_opinion: Mapped[bool] = mapped_column(Boolean, default=False, server_default=false())  # by two


class LateState(Base, CreatedAt):
    """The start state of a sample that was not shown when it was due, though the market could have been reached."""

    __tablename__ = "late_states"
    __table_args__ = (Index("ix_late_states_unbooked", "sample_id", postgresql_where=text("booked IS NULL")),)

    sample_id: Mapped[int] = mapped_column(ForeignKey("samples.id"), primary_key=True)
    unit_id: Mapped[int] = mapped_column(ForeignKey("units.id"))
    provider: Mapped[str] = mapped_column(Address, index=True)
    due_at: Mapped[datetime] = mapped_column(UtcDateTime)
    shown_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    booked: Mapped[str | None] = mapped_column(String(16))  # lateness.Booked


class Canary(Base, CreatedAt):
    """A drawn segment posed once more from an altered state, to see whether verifiers replay. No part of its unit."""

    __tablename__ = "canaries"
    __table_args__ = (UniqueConstraint("unit_id", "segment"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    unit_id: Mapped[int] = mapped_column(ForeignKey("units.id"))
    segment: Mapped[int] = mapped_column(Integer)
    status: Mapped[str] = mapped_column(String(16), index=True)  # lifecycle.CanaryStatus
    reason: Mapped[str | None] = mapped_column(String(64))
    state_cid: Mapped[str | None] = mapped_column(Cid)  # None: released
    start_leaf: Mapped[str] = mapped_column(Hash32)


class Comparison(Base, CreatedAt):
    """A sample replayed in another class: the end state of its verifier, and the provider's, which it asks for then."""

    __tablename__ = "comparisons"

    id: Mapped[int] = mapped_column(primary_key=True)
    sample_id: Mapped[int] = mapped_column(ForeignKey("samples.id"), unique=True)
    unit_id: Mapped[int] = mapped_column(ForeignKey("units.id"))
    segment: Mapped[int] = mapped_column(Integer)
    status: Mapped[str] = mapped_column(String(16), index=True)  # lifecycle.ComparisonStatus
    reason: Mapped[str | None] = mapped_column(String(64))
    computed_cid: Mapped[str | None] = mapped_column(Cid)
    claimed_cid: Mapped[str | None] = mapped_column(
        Cid
    )  # the state there; of the last segment, the unit's replica state
    reveal_lease_id: Mapped[str | None] = mapped_column(String(36))  # on offer to the provider now
    reveal_deadline_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    whole: Mapped[float | None] = mapped_column(Float)  # training_gym.verify.tolerance.Difference
    widest: Mapped[float | None] = mapped_column(Float)


class ClassDrift(Base, CreatedAt):
    """How far an honest segment of a job was from its replay in another class; by these the tolerance widens."""

    __tablename__ = "class_drifts"
    __table_args__ = (Index("ix_class_drifts_pair", "job_id", "provider_class", "verifier_class"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    provider_class: Mapped[str] = mapped_column(Hash32)
    verifier_class: Mapped[str] = mapped_column(Hash32)
    whole: Mapped[float] = mapped_column(Float)
    widest: Mapped[float | None] = mapped_column(Float)


class Replay(Base, CreatedAt):
    """One verifier's replay, of a sample or a canary, or of a sample in another class.

    It commits its result before it can know what is claimed.
    """

    __tablename__ = "replays"
    __table_args__ = (
        UniqueConstraint("sample_id", "verifier"),
        UniqueConstraint("canary_id", "verifier"),
        UniqueConstraint("comparison_id", "verifier"),
        CheckConstraint("num_nonnulls(sample_id, canary_id, comparison_id) = 1", name="of_one"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    sample_id: Mapped[int | None] = mapped_column(ForeignKey("samples.id"), index=True)
    canary_id: Mapped[int | None] = mapped_column(ForeignKey("canaries.id"))
    comparison_id: Mapped[int | None] = mapped_column(ForeignKey("comparisons.id"))
    environment_class: Mapped[str | None] = mapped_column(Hash32)  # its verifier's, of a comparison
    verifier: Mapped[str] = mapped_column(Address)
    status: Mapped[str] = mapped_column(String(16))  # lifecycle.ReplayStatus
    reason: Mapped[str | None] = mapped_column(String(64))
    result_hash: Mapped[str | None] = mapped_column(Hash32)
    end_leaf: Mapped[str | None] = mapped_column(Hash32)
    inner_digest: Mapped[str | None] = mapped_column(Hash32)  # of the state at the sample's inner step, if it has one
    salt: Mapped[str | None] = mapped_column(Hash32)
    attempt: Mapped[int | None] = mapped_column(Integer)  # its number in the lot
    fault: Mapped[str | None] = mapped_column(String(16))  # verification.Fault, at most one of a replay
    fault_from: Mapped[datetime | None] = mapped_column(UtcDateTime)  # when it was asked
    fault_until: Mapped[datetime | None] = mapped_column(UtcDateTime)  # when that ended; None once it is booked

    def as_evidence(self) -> dict[str, object]:
        """What a document of evidence says of it."""
        return {
            "verifier": self.verifier,
            "status": self.status,
            "result_hash": self.result_hash,
            "end_leaf": self.end_leaf,
            "inner_digest": self.inner_digest,
            "salt": self.salt,
            "attempt": self.attempt,
        }
