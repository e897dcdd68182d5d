"""Tables of accounts: who may sign in, with what."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, Integer, String
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Address, Base, CreatedAt, Hash32, UtcDateTime, Wei


class IdempotentRequest(Base, CreatedAt):
    """The answer given to a caller's Idempotency-Key, replayed to retries of the same body."""

    __tablename__ = "idempotent_requests"

    caller: Mapped[str] = mapped_column(Address, primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    body_hash: Mapped[str] = mapped_column(Hash32)
    status_code: Mapped[int] = mapped_column(Integer)
    response: Mapped[dict[str, object]] = mapped_column(JSONB)


class Account(Base, CreatedAt):
    """A wallet that has signed in at least once."""

    __tablename__ = "accounts"

    address: Mapped[str] = mapped_column(Address, primary_key=True)
    roles: Mapped[list[str]] = mapped_column(ARRAY(String(16)), default=list)  # granted: admin | treasury


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
    scopes: Mapped[list[str]] = mapped_column(ARRAY(String(32)), default=list)  # of a key; a session has all
    limit_id: Mapped[int | None] = mapped_column(ForeignKey("spending_limits.id"))
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class SpendingLimit(Base):
    """What one key, organisation or member may commit to jobs; None: no cap. Its row is the lock of its sums."""

    __tablename__ = "spending_limits"

    id: Mapped[int] = mapped_column(primary_key=True)
    per_job_wei: Mapped[int | None] = mapped_column(Wei)
    per_day_wei: Mapped[int | None] = mapped_column(Wei)
    total_wei: Mapped[int | None] = mapped_column(Wei)


class Spending(Base, CreatedAt):
    """What one job counts against one limit: its budget at first, what it cost once it is over."""

    __tablename__ = "spending"
    __table_args__ = (Index("ix_spending_limit_id_created_at", "limit_id", "created_at"),)

    job_id: Mapped[str] = mapped_column(Hash32, primary_key=True)
    limit_id: Mapped[int] = mapped_column(ForeignKey("spending_limits.id"), primary_key=True)
    amount_wei: Mapped[int] = mapped_column(Wei)
