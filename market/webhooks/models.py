"""Tables of webhooks: endpoints and deliveries."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, String, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Base, CreatedAt, UtcDateTime


class WebhookEndpoint(Base, CreatedAt):
    """Account's URL for job events; secrets are plain text, since they sign messages."""

    __tablename__ = "webhook_endpoints"

    id: Mapped[int] = mapped_column(primary_key=True)
    owner: Mapped[str] = mapped_column(ForeignKey("accounts.address"), index=True)
    url: Mapped[str] = mapped_column(String(2048))
    kinds: Mapped[list[str]] = mapped_column(ARRAY(String(32)))  # of job events
    secret: Mapped[str] = mapped_column(String(64))
    old_secret: Mapped[str | None] = mapped_column(String(64))  # also signs until old_secret_until
    old_secret_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    enabled: Mapped[bool] = mapped_column(default=True)
    deleted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    busy_until: Mapped[datetime | None] = mapped_column(UtcDateTime)  # end of the last attempt, or of the rest after it


class WebhookDelivery(Base, CreatedAt):
    """One event for one endpoint. ``message_id`` is the same in all attempts and replays."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        UniqueConstraint("endpoint_id", "event_id"),
        Index("ix_webhook_deliveries_due", "next_attempt_at", postgresql_where=text("status = 'pending'")),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    endpoint_id: Mapped[int] = mapped_column(ForeignKey("webhook_endpoints.id"), index=True)
    event_id: Mapped[int] = mapped_column(BigInteger)  # the job event
    message_id: Mapped[str] = mapped_column(String(40), unique=True)
    payload: Mapped[dict[str, object]] = mapped_column(JSONB)
    status: Mapped[str] = mapped_column(String(16))  # pending | delivered | failed
    attempts: Mapped[int] = mapped_column(default=0)
    next_attempt_at: Mapped[datetime] = mapped_column(UtcDateTime)
    response_status: Mapped[int | None]
    error: Mapped[str | None] = mapped_column(String(200))
    delivered_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
