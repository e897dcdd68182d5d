"""Tables of when the market itself was at work."""

from datetime import datetime

from sqlalchemy import Index, String
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Base, UtcDateTime


class ComponentHeartbeat(Base):
    """When a part of the market (``market.providers.outages.service``) last said that it works."""

    __tablename__ = "presences"

    part: Mapped[str] = mapped_column(String(8), primary_key=True)
    seen_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Outage(Base):
    """A time in which a part of the market did not work."""

    __tablename__ = "outages"
    __table_args__ = (Index("ix_outages_ends_at", "ends_at"),)

    part: Mapped[str] = mapped_column(String(8), primary_key=True)
    starts_at: Mapped[datetime] = mapped_column(UtcDateTime, primary_key=True)
    ends_at: Mapped[datetime] = mapped_column(UtcDateTime)
