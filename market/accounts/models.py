"""Tables of accounts, credentials, spending limits and idempotent requests."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, Integer, String
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Address, Base, CreatedAt, Hash32, UtcDateTime, Wei


class IdempotentRequest(Base, CreatedAt):
    """Response to a caller's Idempotency-Key, returned to retries of the same body."""

    __tablename__ = "idempotent_requests"

    caller: Mapped[str] = mapped_column(Address, primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    body_hash: Mapped[str] = mapped_column(Hash32)
    status_code: Mapped[int] = mapped_column(Integer)
    response: Mapped[dict[str, object]] = mapped_column(JSONB)


class Account(Base, CreatedAt):
    """Wallet that has signed in at least once."""

    __tablename__ = "accounts"

    address: Mapped[str] = mapped_column(Address, primary_key=True)
    roles: Mapped[list[str]] = mapped_column(ARRAY(String(16)), default=list)  # granted: admin | treasury


class SiweNonce(Base, CreatedAt):
    """Sign-in challenge; usable once, by one address, until it expires."""

    __tablename__ = "siwe_nonces"

    nonce: Mapped[str] = mapped_column(String(32), primary_key=True)
    address: Mapped[str] = mapped_column(Address)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class Credential(Base, CreatedAt):
    """Bearer secret: a session (from SIWE) or an API key. Only its SHA-256 is stored."""

    __tablename__ = "credentials"

    id: Mapped[int] = mapped_column(primary_key=True)
    secret_hash: Mapped[str] = mapped_column(Hash32, unique=True)
    prefix: Mapped[str] = mapped_column(String(16))
    kind: Mapped[str] = mapped_column(String(8))  # session | key
    name: Mapped[str] = mapped_column(String(64), default="")
    address: Mapped[str] = mapped_column(ForeignKey("accounts.address"), index=True)
    scopes: Mapped[list[str]] = mapped_column(ARRAY(String(32)), default=list)  # of a key; a session has all
    limit_id: Mapped[int | None] = mapped_column(ForeignKey("spending_limits.id"))
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class SpendingLimit(Base):
    """Spending caps of a key, organisation or member; None: no cap. The row's lock guards sums."""

    __tablename__ = "spending_limits"

    id: Mapped[int] = mapped_column(primary_key=True)
    per_job_wei: Mapped[int | None] = mapped_column(Wei)
    per_day_wei: Mapped[int | None] = mapped_column(Wei)
    total_wei: Mapped[int | None] = mapped_column(Wei)


class Spending(Base, CreatedAt):
    """Charge of a job to a limit: its budget, and after the settlement its cost."""

    __tablename__ = "spending"
    __table_args__ = (Index("ix_spending_limit_id_created_at", "limit_id", "created_at"),)

    job_id: Mapped[str] = mapped_column(Hash32, primary_key=True)
    limit_id: Mapped[int] = mapped_column(ForeignKey("spending_limits.id"), primary_key=True)
    amount_wei: Mapped[int] = mapped_column(Wei)
