"""Tables of samples, late states, canaries, comparisons and replays."""

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
    """One sampled segment of a unit: passes on a match, fails if two verifiers refute it."""

    __tablename__ = "samples"
    __table_args__ = (UniqueConstraint("unit_id", "segment"), Index("ix_samples_state_cid", "state_cid"))

    id: Mapped[int] = mapped_column(primary_key=True)
    unit_id: Mapped[int] = mapped_column(ForeignKey("units.id"), index=True)
    segment: Mapped[int] = mapped_column(Integer)
    status: Mapped[str] = mapped_column(String(16), index=True)  # lifecycle.SampleStatus
    reason: Mapped[str | None] = mapped_column(String(64))
    state_cid: Mapped[str | None] = mapped_column(Cid)  # start state in storage (None: segment 0's, or released)
    reveal_lease_id: Mapped[str | None] = mapped_column(String(36))  # open lease of the provider
    reveal_requested_at: Mapped[datetime | None] = mapped_column(UtcDateTime)  # both deadlines count from it
    reveal_deadline_at: Mapped[datetime | None] = mapped_column(UtcDateTime)  # the state is late after it
    reveal_until_at: Mapped[datetime | None] = mapped_column(UtcDateTime)  # the state is refused after it
    refusal: Mapped[str | None] = mapped_column(String(64))  # code of the provider's last refusal
    canary_due: Mapped[bool] = mapped_column(Boolean, default=False, server_default=false())  # get a canary
    inner_step: Mapped[int | None] = mapped_column(Integer)  # replays of a first segment return the state after it
    inner_nonce: Mapped[str | None] = mapped_column(Hash32)  # for the digest of that state
    second_opinion: Mapped[bool] = mapped_column(Boolean, default=False, server_default=false())  # duplicate replay


class LateState(Base, CreatedAt):
    """A sample's start state that was not revealed in time, without a market outage."""

    __tablename__ = "late_states"
    __table_args__ = (Index("ix_late_states_unbooked", "sample_id", postgresql_where=text("booked IS NULL")),)

    sample_id: Mapped[int] = mapped_column(ForeignKey("samples.id"), primary_key=True)
    unit_id: Mapped[int] = mapped_column(ForeignKey("units.id"))
    provider: Mapped[str] = mapped_column(Address, index=True)
    due_at: Mapped[datetime] = mapped_column(UtcDateTime)
    shown_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    booked: Mapped[str | None] = mapped_column(String(16))  # late_states.LatenessOutcome


class Canary(Base, CreatedAt):
    """Sampled segment with an altered start state, to detect copying; no part of its unit."""

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
    """Cross-class check of a sample: a verifier's end state and the provider's."""

    __tablename__ = "comparisons"

    id: Mapped[int] = mapped_column(primary_key=True)
    sample_id: Mapped[int] = mapped_column(ForeignKey("samples.id"), unique=True)
    unit_id: Mapped[int] = mapped_column(ForeignKey("units.id"))
    segment: Mapped[int] = mapped_column(Integer)
    status: Mapped[str] = mapped_column(String(16), index=True)  # lifecycle.ComparisonStatus
    reason: Mapped[str | None] = mapped_column(String(64))
    computed_cid: Mapped[str | None] = mapped_column(Cid)
    claimed_cid: Mapped[str | None] = mapped_column(Cid)  # for the last segment: the unit's replica state
    reveal_lease_id: Mapped[str | None] = mapped_column(String(36))  # open lease of the provider
    reveal_deadline_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    whole: Mapped[float | None] = mapped_column(Float)  # training_gym.verify.tolerance.Difference
    widest: Mapped[float | None] = mapped_column(Float)


class ClassDrift(Base, CreatedAt):
    """Distance of an honest segment from another class's replay; widens the tolerance."""

    __tablename__ = "class_drifts"
    __table_args__ = (Index("ix_class_drifts_pair", "job_id", "provider_class", "verifier_class"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    provider_class: Mapped[str] = mapped_column(Hash32)
    verifier_class: Mapped[str] = mapped_column(Hash32)
    whole: Mapped[float] = mapped_column(Float)
    widest: Mapped[float | None] = mapped_column(Float)


class Replay(Base, CreatedAt):
    """One verifier's replay of a sample or a canary, or for a comparison.

    The verifier commits its result before the claim is public.
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
    signature: Mapped[str | None] = mapped_column(String(132))  # of its ReplayCommitment
    end_leaf: Mapped[str | None] = mapped_column(Hash32)
    inner_digest: Mapped[str | None] = mapped_column(Hash32)  # of the state at the sample's inner step, if it has one
    salt: Mapped[str | None] = mapped_column(Hash32)
    attempt: Mapped[int | None] = mapped_column(Integer)  # its number in the random draw
    fault: Mapped[str | None] = mapped_column(String(16))  # sampling.Fault, at most one per replay
    fault_from: Mapped[datetime | None] = mapped_column(UtcDateTime)  # time of the offer
    fault_until: Mapped[datetime | None] = mapped_column(UtcDateTime)  # end of the lease; None once recorded

    def as_evidence(self) -> dict[str, object]:
        names = ("verifier", "status", "result_hash", "signature", "end_leaf", "inner_digest", "salt", "attempt")
        return {name: getattr(self, name) for name in names}
