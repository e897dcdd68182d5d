"""Tables of settlement: the batches as they were posted, their lines by job, and what providers can claim from them.

Which batch pays a unit is a column of the unit. A batch is written with all its parts in the transaction that queues
its posting, so that after a crash there is either all of it or nothing.
"""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, String, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Address, Base, Cid, CreatedAt, Hash32, UtcDateTime, Wei


class SettlementBatch(Base, CreatedAt):
    """One call of ``JobEscrow.settle``. A batch without root pays nobody, it only ends jobs."""

    __tablename__ = "settlement_batches"
    __table_args__ = (
        # After a veto the same lines may be posted again, under the same root.
        Index("uq_settlement_batches_root", "root", unique=True, postgresql_where=text("void_reason IS NULL")),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    intent_key: Mapped[str | None] = mapped_column(unique=True)  # of the call; set in the same transaction
    root: Mapped[str | None] = mapped_column(Hash32)  # as the contract stores it
    batch_id: Mapped[int | None] = mapped_column(BigInteger, unique=True)  # in the contract, once final
    claimable_at: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)
    void_reason: Mapped[str | None] = mapped_column(String(64))  # settlement_vetoed | settlement_refused
    voided_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    fees_key: Mapped[str | None]  # of the intent that collects the fee; None: not asked for


class SettlementLine(Base):
    """What a batch settles of one job: ``units`` units, of rounds ``from_round`` to before ``to_round``."""

    __tablename__ = "settlement_lines"
    __table_args__ = (
        # The next line of a job depends on what the contract made of the one before.
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
    """What one provider can take from a batch, with the proof that the contract asks for."""

    __tablename__ = "settlement_claims"
    __table_args__ = (Index("ix_settlement_claims_open", "provider", postgresql_where=text("claim_tx IS NULL")),)

    settlement_id: Mapped[int] = mapped_column(ForeignKey(SettlementBatch.id), primary_key=True)
    provider: Mapped[str] = mapped_column(Address, primary_key=True)
    job_ids: Mapped[list[str]] = mapped_column(JSONB)  # of the units that it is for
    amount_wei: Mapped[int] = mapped_column(Wei)
    proof: Mapped[list[str]] = mapped_column(JSONB)
    claim_tx: Mapped[str | None] = mapped_column(Hash32)


class ContestedUnit(Base):
    """A unit whose pay a dispute on chain withholds, or that lost one. The key is the leaf of its commitment."""

    __tablename__ = "contested_units"

    unit_key: Mapped[str] = mapped_column(Hash32, primary_key=True)
    lost: Mapped[bool]
