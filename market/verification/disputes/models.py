"""Tables of disputes: each that the contract Disputes has, as final events say, and what its parties told us of it.

The contract decides; a row only says what is to be looked at. Who acts asks the chain first where things stand.
"""

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, Integer, String, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from market.domain.lifecycle import DISPUTE_OPEN, DisputeStatus
from market.platform.db.base import Address, Base, Cid, CreatedAt, Hash32

_STATUSES = ", ".join(f"'{status}'" for status in DisputeStatus)


_OPEN = "status IN (" + ", ".join(f"'{status}'" for status in DisputeStatus if status in DISPUTE_OPEN) + ")"


class Dispute(Base, CreatedAt):
    """One challenger's dispute of one unit. ``unit_key`` is the leaf of the unit's commitment in its window."""

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
    step: Mapped[int | None] = mapped_column(Integer)  # from the boundary of that number to the next
    environment_class: Mapped[str | None] = mapped_column(Hash32)  # of the shown trace
    states: Mapped[list[str] | None] = mapped_column(JSONB)  # digests at all boundaries, as they were shown
    draw: Mapped[int] = mapped_column(Integer, default=0)  # number of the present committee
    committee: Mapped[list[str] | None] = mapped_column(JSONB)  # its members, in the order of the contract
    state_cid: Mapped[str | None] = mapped_column(Cid)  # where the provider says that the step's start state is
    opened_tx: Mapped[str] = mapped_column(Hash32)
    ended_tx: Mapped[str | None] = mapped_column(Hash32)


class Verdict(Base, CreatedAt):
    """What one referee of a committee signed. It is checked before it is stored, and never changed."""

    __tablename__ = "dispute_verdicts"

    dispute_id: Mapped[str] = mapped_column(ForeignKey(Dispute.id), primary_key=True)
    draw: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    referee: Mapped[str] = mapped_column(Address, primary_key=True)
    provider_correct: Mapped[bool]
    reason: Mapped[str] = mapped_column(
        String(32)
    )  # the referee's; it says whether a verdict or an objection is signed
    signature: Mapped[str] = mapped_column(String(132))  # EIP-712, 65 bytes


class WithheldUnit(Base):
    """A unit whose pay the escrow keeps out of its batch until its disputes are over."""

    __tablename__ = "withheld_units"

    unit_key: Mapped[str] = mapped_column(Hash32, primary_key=True)
    batch_id: Mapped[int] = mapped_column(BigInteger)  # in the contract
