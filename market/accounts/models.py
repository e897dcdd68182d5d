"""Tables of accounts: who may sign in, with what."""

from datetime import datetime

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from market.db.base import Address, Base, CreatedAt, Hash32, UtcDateTime


class Account(Base, CreatedAt):
    """A wallet that has signed in at least once."""

    __tablename__ = "accounts"

    address: Mapped[str] = mapped_column(Address, primary_key=True)
    is_admin: Mapped[bool] = mapped_column(default=False)


class SiweNonce(Base, CreatedAt):
    """A sign-in challenge; usable once, by one address, until it expires."""

    __tablename__ = "siwe_nonces"

    nonce: Mapped[str] = mapped_column(String(32), primary_key=True)
    address: Mapped[str] = mapped_column(Address)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class Credential(Base, CreatedAt):
    """A bearer secret: a session (from SIWE) or an API key. Only its SHA-256 is kept."""

    __tablename__ = "credentials"

    id: Mapped[int] = mapped_column(primary_key=True)
    secret_hash: Mapped[str] = mapped_column(Hash32, unique=True)
    prefix: Mapped[str] = mapped_column(String(16))
    kind: Mapped[str] = mapped_column(String(8))  # session | key
    name: Mapped[str] = mapped_column(String(64), default="")
    address: Mapped[str] = mapped_column(ForeignKey("accounts.address"), index=True)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
