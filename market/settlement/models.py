"""Tables of settlement: each job's batch as it was posted, and what its providers can claim from it."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from market.db.base import Address, Base, CreatedAt, Hash32, UtcDateTime, Wei


class SettlementBatch(Base, CreatedAt):
    """The batch that pays the units of one job. Columns below ``root`` are what the chain said, once it is final."""

    __tablename__ = "settlement_batches"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    root: Mapped[str] = mapped_column(Hash32, unique=True)  # as the contract stores it
    batch_id: Mapped[int | None] = mapped_column(BigInteger, unique=True)
    claimable_at: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)
    vetoed: Mapped[bool] = mapped_column(default=False)
    fees_key: Mapped[str | None]  # of the intent that collects the fee; None: not asked for


class SettlementClaim(Base):
    """What one provider can take from a batch, with the proof that the contract asks for."""

    __tablename__ = "settlement_claims"
    __table_args__ = (Index("ix_settlement_claims_open", "provider", postgresql_where=text("claim_tx IS NULL")),)

    job_id: Mapped[str] = mapped_column(ForeignKey(SettlementBatch.job_id), primary_key=True)
    provider: Mapped[str] = mapped_column(Address, primary_key=True)
    amount_wei: Mapped[int] = mapped_column(Wei)
    proof: Mapped[list[str]] = mapped_column(JSONB)
    claim_tx: Mapped[str | None] = mapped_column(Hash32)
