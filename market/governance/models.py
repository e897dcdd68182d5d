"""Tables of governance: timelock operations, payouts under challenge, events, and sent acts.

All rows but those of sent acts and acknowledgements follow from final chain events.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Index, String, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Address, Base, CreatedAt, Hash32, UtcDateTime, Wei


class TimelockOperation(Base, CreatedAt):
    """Scheduled operation of the timelock. It is pending until it is executed or cancelled."""

    __tablename__ = "timelock_operations"
    __table_args__ = (
        Index("ix_timelock_operations_pending", "ready_at", postgresql_where=text("ended_at IS NULL")),
        Index("ix_timelock_operations_scheduled_at", "scheduled_at"),
    )

    id: Mapped[str] = mapped_column(Hash32, primary_key=True)
    calls: Mapped[list[dict[str, Any]]] = mapped_column(JSONB)  # target, value, data
    predecessor: Mapped[str] = mapped_column(Hash32)
    salt: Mapped[str] = mapped_column(Hash32)
    scheduled_at: Mapped[datetime] = mapped_column(UtcDateTime)
    scheduled_tx: Mapped[str] = mapped_column(Hash32)
    ready_at: Mapped[datetime] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    ended_tx: Mapped[str | None] = mapped_column(Hash32)
    executed: Mapped[bool] = mapped_column(default=False)  # of an ended operation; False: cancelled


class PostedPayout(Base, CreatedAt):
    """Settlement batch or reward epoch as the chain has it."""

    __tablename__ = "posted_payouts"
    __table_args__ = (Index("ix_posted_payouts_claimable_at", "claimable_at"),)

    kind: Mapped[str] = mapped_column(String(8), primary_key=True)  # batch | epoch
    number: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    root: Mapped[str] = mapped_column(Hash32)
    net_wei: Mapped[int] = mapped_column(Wei)  # to providers, or all rewards of the epoch
    fee_wei: Mapped[int] = mapped_column(Wei)
    posted_at: Mapped[datetime] = mapped_column(UtcDateTime)
    posted_tx: Mapped[str] = mapped_column(Hash32)
    claimable_at: Mapped[datetime] = mapped_column(UtcDateTime)
    vetoed_tx: Mapped[str | None] = mapped_column(Hash32)


class GovernanceEvent(Base, CreatedAt):
    """Change of a role, a pause, a step of the timelock, or a payout that is not the market's."""

    __tablename__ = "governance_events"
    __table_args__ = (
        UniqueConstraint("tx_hash", "log_index"),
        Index("ix_governance_events_role", "contract", "role", "account", postgresql_where=text("role IS NOT NULL")),
        Index("ix_governance_events_operation_id", "operation_id", postgresql_where=text("operation_id IS NOT NULL")),
        Index(
            "ix_governance_events_open",
            "id",
            postgresql_where=text("acknowledged_by IS NULL AND NOT at_deployment"),
        ),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(32))  # schemas.EventKind
    contract: Mapped[str] = mapped_column(String(32))
    role: Mapped[str | None] = mapped_column(String(66))  # name, or the bytes32 of an unknown role
    account: Mapped[str | None] = mapped_column(Address)  # holder of the role, or the pauser
    operation_id: Mapped[str | None] = mapped_column(Hash32)
    data: Mapped[dict[str, Any]] = mapped_column(JSONB)
    tx_hash: Mapped[str] = mapped_column(Hash32, index=True)
    log_index: Mapped[int]
    block_number: Mapped[int] = mapped_column(BigInteger)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    at_deployment: Mapped[bool]  # of the transaction that created the contract
    acknowledged_by: Mapped[str | None] = mapped_column(Address)
    acknowledged_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class SentAct(Base, CreatedAt):
    """Transaction of an act that a holder of a role sent from here. Its events raise no alarm."""

    __tablename__ = "sent_acts"

    tx_hash: Mapped[str] = mapped_column(Hash32, primary_key=True)
    act: Mapped[str] = mapped_column(String(64))
    stage: Mapped[str] = mapped_column(String(16))
    account: Mapped[str] = mapped_column(Address)
