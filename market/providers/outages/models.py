"""Tables of the market's own liveness and outages."""

from datetime import datetime

from sqlalchemy import Index, String
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Base, UtcDateTime


class ComponentHeartbeat(Base):
    """Time of the last heartbeat of a component (``market.providers.outages.service``)."""

    __tablename__ = "presences"

    part: Mapped[str] = mapped_column(String(8), primary_key=True)
    seen_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Outage(Base):
    """Outage of a component of the market."""

    __tablename__ = "outages"
    __table_args__ = (Index("ix_outages_ends_at", "ends_at"),)

    part: Mapped[str] = mapped_column(String(8), primary_key=True)
    starts_at: Mapped[datetime] = mapped_column(UtcDateTime, primary_key=True)
    ends_at: Mapped[datetime] = mapped_column(UtcDateTime)
