"""Tables of jobs and their slots."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, String, func, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Address, Base, Cid, CreatedAt, Hash32, UtcDateTime, Wei


class Job(Base, CreatedAt):
    """A training job. Its id is the struct hash of the payer's signed order, also on chain."""

    __tablename__ = "jobs"
    __table_args__ = (
        Index("ix_jobs_payer_created_at_id", "payer", "created_at", "id"),
        Index("ix_jobs_created_at_id", "created_at", "id"),  # lists of all jobs
        Index("ix_jobs_status_created_at_id", "status", "created_at", "id"),
        Index("ix_jobs_status", "status"),  # counts; equal keys share an entry, so it is small
        Index("ix_jobs_flow", "created_at", postgresql_include=["tier_id", "status", "funded_at", "matched_at"]),
        Index("ix_jobs_budget_wei_id", "budget_wei", "id"),
        Index("ix_jobs_open", "id", postgresql_where=text("status NOT IN ('settled', 'rejected')")),
        Index("ix_jobs_settled_at", "settled_at", postgresql_include=["tier_id", "fee_wei"]),  # fees by day and tier
        Index("ix_jobs_unreleased", "id", postgresql_where=text("released_at IS NULL")),
    )

    id: Mapped[str] = mapped_column(Hash32, primary_key=True)
    payer: Mapped[str] = mapped_column(ForeignKey("accounts.address"))
    status: Mapped[str] = mapped_column(String(16))  # lifecycle.JobStatus
    reason: Mapped[str | None] = mapped_column(String(64))  # completed | expired | cancelled_by_payer | ...
    request: Mapped[dict[str, object]] = mapped_column(JSONB)  # the job as submitted
    spec: Mapped[dict[str, Any]] = mapped_column(JSONB)  # training_gym.spec.config.TrainingSpec.to_dict()
    spec_hash: Mapped[str] = mapped_column(Hash32)
    spec_cid: Mapped[str] = mapped_column(Cid)
    tier_id: Mapped[int] = mapped_column(Integer)
    nodes: Mapped[int] = mapped_column(Integer)
    rounds: Mapped[int] = mapped_column(Integer)
    segments: Mapped[int] = mapped_column(Integer)
    sampling_bps: Mapped[int] = mapped_column(Integer)  # minimum sampling rate, signed with the order
    checkpoint_interval: Mapped[int] = mapped_column(Integer)
    redundancy: Mapped[int] = mapped_column(Integer)
    requirements: Mapped[dict[str, object]] = mapped_column(JSONB)
    # The signed order, as relayed to the escrow contract.
    units_ordered: Mapped[int] = mapped_column(Integer)
    unit_weight_us: Mapped[int] = mapped_column(BigInteger)
    budget_wei: Mapped[int] = mapped_column(Wei)
    max_price_wei: Mapped[int] = mapped_column(Wei)
    wait_until: Mapped[datetime] = mapped_column(UtcDateTime)
    nonce: Mapped[int] = mapped_column(Wei)
    order_signature: Mapped[str] = mapped_column(String(132))
    organisation_id: Mapped[int | None] = mapped_column(ForeignKey("organisations.id"), index=True)
    # The payer's later changes; the signed order above is immutable.
    amended_max_price_wei: Mapped[int | None] = mapped_column(Wei)
    amended_wait_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    cancelled_by: Mapped[str | None] = mapped_column(Address)  # requested before the deposit was final
    paused_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # Projections of final chain events.
    escrowed_wei: Mapped[int] = mapped_column(Wei, default=0)
    fee_bps: Mapped[int | None] = mapped_column(Integer)
    paid_wei: Mapped[int | None] = mapped_column(Wei)
    fee_wei: Mapped[int | None] = mapped_column(Wei)
    refund_wei: Mapped[int | None] = mapped_column(Wei)
    open_tx: Mapped[str | None] = mapped_column(Hash32)
    settlement_tx: Mapped[str | None] = mapped_column(Hash32)
    # Matching and training.
    clearing_price_wei: Mapped[int | None] = mapped_column(Wei)
    auction_round_id: Mapped[int | None] = mapped_column(ForeignKey("auction_rounds.id"))
    environment_class: Mapped[str | None] = mapped_column(Hash32)  # fixed at matching; replays compare within it
    # Reservation: nodes of this zone and class (market.training.matching.reservations).
    reserved_zone: Mapped[str | None] = mapped_column(String(32))
    reserved_class: Mapped[str | None] = mapped_column(Hash32)
    reserved_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    current_round: Mapped[int] = mapped_column(Integer, default=0)
    round_started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    record_cid: Mapped[str | None] = mapped_column(Cid)  # the job record whose digest is in the settlement
    funded_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    matched_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    first_step_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    trained_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    settled_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    released_at: Mapped[datetime | None] = mapped_column(UtcDateTime)  # purged by market.training.retention.service

    @property
    def name(self) -> str | None:
        """The payer's name for the job, if it gave one."""
        name = self.request.get("name")
        return None if name is None else str(name)

    @property
    def price_cap_wei(self) -> int:
        """Highest price in wei per GPU-hour that the payer currently accepts."""
        return self.max_price_wei if self.amended_max_price_wei is None else self.amended_max_price_wei

    @property
    def expires_at(self) -> datetime:
        """Time until which the payer waits for a match."""
        return self.amended_wait_until or self.wait_until


LOWER_NAME = func.lower(Job.request["name"].astext)
Index("ix_jobs_name", LOWER_NAME.label("name"), postgresql_ops={"name": "text_pattern_ops"})


class Slot(Base):
    """One replica of a running job and its node (None: vacant, to be filled from the book).

    A node holds at most one slot over all jobs. Slots are freed when their job stops training.
    """

    __tablename__ = "slots"
    __table_args__ = (Index("uq_slots_provider", "provider", unique=True),)

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    slot: Mapped[int] = mapped_column(Integer, primary_key=True)
    provider: Mapped[str | None] = mapped_column(Address)
    # The unit whose end replica state starts the next unit (None: a fresh one).
    state_unit_id: Mapped[int | None] = mapped_column(ForeignKey("units.id"))
