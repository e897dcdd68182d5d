"""Table of leases."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, Integer, String, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Address, Base, CreatedAt, Hash32, UtcDateTime


class Lease(Base, CreatedAt):
    """Work assigned to one node. Later calls need the token, so former holders cannot act."""

    __tablename__ = "leases"
    __table_args__ = (
        Index("ix_leases_open_holder", "holder", postgresql_where=text("status IN ('offered','active')")),
        Index(
            "uq_leases_open_train",
            "unit_id",
            unique=True,
            postgresql_where=text("kind = 'train' AND status IN ('offered','active')"),
        ),
        Index("ix_leases_follow_checkpoint", "checkpoint_id", postgresql_where=text("kind = 'follow'")),
        Index("ix_leases_follow_holder", "holder", "created_at", postgresql_where=text("kind = 'follow'")),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    kind: Mapped[str] = mapped_column(String(8))  # train | reveal | replay | pin | publish | follow | evaluate
    holder: Mapped[str] = mapped_column(Address)
    status: Mapped[str] = mapped_column(String(8), index=True)  # lifecycle.LeaseStatus
    reason: Mapped[str | None] = mapped_column(String(64))
    token: Mapped[str] = mapped_column(Hash32)
    task: Mapped[dict[str, Any]] = mapped_column(JSONB)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), index=True)
    unit_id: Mapped[int | None] = mapped_column(ForeignKey("units.id"), index=True)
    replay_id: Mapped[int | None] = mapped_column(ForeignKey("replays.id"))
    checkpoint_id: Mapped[int | None] = mapped_column(ForeignKey("checkpoints.id"))
    result: Mapped[str | None] = mapped_column(String(512))  # record of an evaluation
    step: Mapped[int] = mapped_column(Integer, default=0)
    pulled_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
