"""Table of the console's sessions."""

from datetime import datetime

from sqlalchemy import ForeignKey, String
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Base, CreatedAt, Hash32, UtcDateTime


class ConsoleSession(Base, CreatedAt):
    """Browser session of a wallet. Only the SHA-256 of its cookie is stored."""

    __tablename__ = "console_sessions"

    id: Mapped[int] = mapped_column(primary_key=True)
    secret_hash: Mapped[str] = mapped_column(Hash32, unique=True)
    address: Mapped[str] = mapped_column(ForeignKey("accounts.address"), index=True)
    user_agent: Mapped[str] = mapped_column(String(200))
    chain_roles: Mapped[list[str]] = mapped_column(ARRAY(String(16)), default=list)  # read from the contracts
    roles_read_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    seen_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
