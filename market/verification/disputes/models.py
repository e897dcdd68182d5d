"""Tables of disputes, from final events, of their parties' data, and of the market's own.

The contract decides. Callers read the current state from the chain before they act.
"""

from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, Integer, String, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from market.chain.contracts.codec import Json
from market.domain.lifecycle import DISPUTE_OPEN, DisputeStatus
from market.platform.db.base import Address, Base, Cid, CreatedAt, Hash32, UtcDateTime

_STATUSES = ", ".join(f"'{status}'" for status in DisputeStatus)
_OPEN = "status IN (" + ", ".join(f"'{status}'" for status in DisputeStatus if status in DISPUTE_OPEN) + ")"


class Dispute(Base, CreatedAt):
    """Dispute of a unit; ``unit_key`` is the commitment's leaf in its window."""

    __tablename__ = "disputes"
    __table_args__ = (
        CheckConstraint(f"status IN ({_STATUSES})", name="status"),
        Index("ix_disputes_open", "id", postgresql_where=text(_OPEN)),
    )

    id: Mapped[str] = mapped_column(Hash32, primary_key=True)  # as in the contract
    unit_key: Mapped[str] = mapped_column(Hash32, index=True)
    provider: Mapped[str] = mapped_column(Address)
    challenger: Mapped[str] = mapped_column(Address)
    segments: Mapped[int] = mapped_column(Integer)
    status: Mapped[str] = mapped_column(String(16), default=DisputeStatus.TRACE)
    step: Mapped[int | None] = mapped_column(Integer)  # selected segment
    environment_class: Mapped[str | None] = mapped_column(Hash32)  # of the revealed trace
    states: Mapped[list[str] | None] = mapped_column(JSONB)  # revealed digests of all boundary states
    draw: Mapped[int] = mapped_column(Integer, default=0)  # number of the current committee
    committee: Mapped[list[str] | None] = mapped_column(JSONB)  # members, in the order of the contract
    state_cid: Mapped[str | None] = mapped_column(Cid)  # the segment's start state, by the provider
    opened_tx: Mapped[str] = mapped_column(Hash32)
    ended_tx: Mapped[str | None] = mapped_column(Hash32)


class Verdict(Base, CreatedAt):
    """A referee's signed verdict or objection. It is checked before it is stored, and immutable."""

    __tablename__ = "dispute_verdicts"

    dispute_id: Mapped[str] = mapped_column(ForeignKey(Dispute.id), primary_key=True)
    draw: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    referee: Mapped[str] = mapped_column(Address, primary_key=True)
    provider_correct: Mapped[bool]
    reason: Mapped[str] = mapped_column(String(32))  # the referee's; selects verdict or objection
    signature: Mapped[str] = mapped_column(String(132))  # EIP-712, 65 bytes


class WithheldUnit(Base):
    """A unit whose payout the escrow holds until its disputes are over."""

    __tablename__ = "withheld_units"

    unit_key: Mapped[str] = mapped_column(Hash32, primary_key=True)
    batch_id: Mapped[int] = mapped_column(BigInteger)  # in the contract


class Challenge(Base, CreatedAt):
    """The market's dispute of a unit: claim and outcome; ``Dispute`` has the chain's state.

    It is written in the transaction that disputes the unit, with all arguments of ``Disputes.open``. Its id follows
    from unit and challenger, so a restarted market opens the same dispute, once.
    """

    __tablename__ = "challenges"
    __table_args__ = (Index("ix_challenges_open", "provider", postgresql_where=text("status = 'open'")),)

    unit_id: Mapped[int] = mapped_column(ForeignKey("units.id"), primary_key=True)
    dispute_id: Mapped[str] = mapped_column(Hash32, unique=True)  # in the contract
    unit_key: Mapped[str] = mapped_column(Hash32)
    job_id: Mapped[str] = mapped_column(Hash32)
    round: Mapped[int] = mapped_column(Integer)
    slot: Mapped[int] = mapped_column(Integer)
    provider: Mapped[str] = mapped_column(Address)
    challenger: Mapped[str] = mapped_column(Address)
    step: Mapped[int] = mapped_column(Integer)  # segment with the rejected end
    status: Mapped[str] = mapped_column(String(16))  # lifecycle.ChallengeStatus
    reason: Mapped[str | None] = mapped_column(String(64))
    evidence_cid: Mapped[str] = mapped_column(Cid)
    open_by: Mapped[datetime] = mapped_column(UtcDateTime)  # last second at which the contract opens it
    arguments: Mapped[list[Json]] = mapped_column(JSONB)  # of Disputes.open
    convicted_in: Mapped[str | None] = mapped_column(Hash32)  # upheld dispute of the unit, if any
