"""Tables of settlement: posted batches, their lines by job, and the providers' claims.

The batch of a unit is a column of the unit. A batch, its parts and the intent that posts it are written in one
transaction.
"""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, String, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Address, Base, Cid, CreatedAt, Hash32, UtcDateTime, Wei


class SettlementBatch(Base, CreatedAt):
    """One call of ``JobEscrow.settle``. A batch without root pays no units; it only ends jobs."""

    __tablename__ = "settlement_batches"
    __table_args__ = (
        # After a veto the same lines may be posted again with the same root.
        Index("uq_settlement_batches_root", "root", unique=True, postgresql_where=text("void_reason IS NULL")),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    intent_key: Mapped[str | None] = mapped_column(unique=True)  # set in the same transaction
    root: Mapped[str | None] = mapped_column(Hash32)  # as the contract stores it
    batch_id: Mapped[int | None] = mapped_column(BigInteger, unique=True)  # in the contract, once final
    claimable_at: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)
    void_reason: Mapped[str | None] = mapped_column(String(64))  # settlement_vetoed | settlement_refused
    voided_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    fees_key: Mapped[str | None]  # of the intent that collects the fee


class SettlementLine(Base):
    """A job's share of a batch: ``units`` units of rounds ``from_round`` to ``to_round`` - 1."""

    __tablename__ = "settlement_lines"
    __table_args__ = (
        # The next line of a job depends on the outcome of the one before.
        Index("uq_settlement_lines_pending", "job_id", unique=True, postgresql_where=text("status = 'pending'")),
    )

    settlement_id: Mapped[int] = mapped_column(ForeignKey(SettlementBatch.id), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True, index=True)
    status: Mapped[str] = mapped_column(String(8))  # pending | settled | void
    units: Mapped[int] = mapped_column(Integer)
    from_round: Mapped[int] = mapped_column(Integer)
    to_round: Mapped[int] = mapped_column(Integer)
    last: Mapped[bool]
    record_cid: Mapped[str] = mapped_column(Cid)


class SettlementClaim(Base):
    """One provider's claim from a batch, with its Merkle proof."""

    __tablename__ = "settlement_claims"
    __table_args__ = (
        Index("ix_settlement_claims_open", "provider", postgresql_where=text("claim_tx IS NULL")),
        Index("ix_settlement_claims_provider", "provider"),
    )

    settlement_id: Mapped[int] = mapped_column(ForeignKey(SettlementBatch.id), primary_key=True)
    provider: Mapped[str] = mapped_column(Address, primary_key=True)
    job_ids: Mapped[list[str]] = mapped_column(JSONB)  # of the paid units
    amount_wei: Mapped[int] = mapped_column(Wei)
    proof: Mapped[list[str]] = mapped_column(JSONB)
    claim_tx: Mapped[str | None] = mapped_column(Hash32)


class ContestedUnit(Base):
    """A unit in an on-chain dispute, or one that lost it. The key is the leaf of its commitment."""

    __tablename__ = "contested_units"

    unit_key: Mapped[str] = mapped_column(Hash32, primary_key=True)
    lost: Mapped[bool]
