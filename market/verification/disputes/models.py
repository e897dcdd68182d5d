"""Tables of disputes, from final events, and of data from their parties.

The contract decides. Callers read the current state from the chain before they act.
"""

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, Integer, String, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from market.domain.lifecycle import DISPUTE_OPEN, DisputeStatus
from market.platform.db.base import Address, Base, Cid, CreatedAt, Hash32

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
