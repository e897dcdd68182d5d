"""Tables of aggregation leaves and of the memory of workers."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Integer, String
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Base, Cid, CreatedAt, Hash32, UtcDateTime


class AggregationLeaf(Base, CreatedAt):
    """Leaf of the tree that aggregates a job's round; deleted when the round closes."""

    __tablename__ = "aggregation_leaves"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    round: Mapped[int] = mapped_column(Integer, primary_key=True)
    leaf: Mapped[int] = mapped_column(Integer, primary_key=True)
    seed: Mapped[str] = mapped_column(Hash32)  # of the sketches; identifies the payloads of all leaves of the plan
    parts: Mapped[list[dict[str, Any]]] = mapped_column(JSONB)  # market.training.aggregation.payloads.AggregationInput
    summary: Mapped[dict[str, Any] | None] = mapped_column(JSONB)  # training_gym.aggregate.tree.Summary
    sum_cid: Mapped[str | None] = mapped_column(Cid)


class WorkerMemory(Base):
    """Memory of a worker that aggregates, by its last report."""

    __tablename__ = "worker_memory"

    worker: Mapped[str] = mapped_column(String(255), primary_key=True)
    memory_bytes: Mapped[int] = mapped_column(BigInteger)
    seen_at: Mapped[datetime] = mapped_column(UtcDateTime)
