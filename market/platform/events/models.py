"""Tables of the audit log and of the outbox of job events."""

from datetime import datetime

from sqlalchemy import Index, String, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Base, CreatedAt, Hash32, UtcDateTime


class JobEventRow(Base, CreatedAt):
    """Outbox: events for a job's subscribers, stored with the change that they report.

    The events worker announces rows after their commit. Subscribers read them in the order of announcement, because ids
    may become visible out of order. A lost announcement only delays them.
    """

    __tablename__ = "job_events"
    __table_args__ = (
        Index("ix_job_events_unannounced", "id", postgresql_where=text("announced_at IS NULL")),
        Index("ix_job_events_job_id_announced_at_id", "job_id", "announced_at", "id"),
        Index("ix_job_events_steps", "created_at", postgresql_where=text("kind = 'step'")),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(Hash32)
    kind: Mapped[str] = mapped_column(String(32))  # webhooks.router.EventKind
    data: Mapped[dict[str, object]] = mapped_column(JSONB)
    announced_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class AuditEvent(Base, CreatedAt):
    """Transition of a state machine or act of an admin; append-only."""

    __tablename__ = "audit_events"

    id: Mapped[int] = mapped_column(primary_key=True)
    subject_kind: Mapped[str] = mapped_column(String(16), index=True)  # job | unit | provider | lease | ...
    subject_id: Mapped[str] = mapped_column(String(80), index=True)
    event: Mapped[str] = mapped_column(String(32))
    from_status: Mapped[str | None] = mapped_column(String(16))
    to_status: Mapped[str | None] = mapped_column(String(16))
    reason: Mapped[str | None] = mapped_column(String(64))
    actor: Mapped[str] = mapped_column(String(42))  # an address, "market" or "chain"
    data: Mapped[dict[str, object]] = mapped_column(JSONB, default=dict)
