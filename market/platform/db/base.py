"""Declarative base and column types shared by all tables."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import DateTime, MetaData, Numeric, String, func
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

NAMING_CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """Base of all tables. Constraint names are fixed for the migrations."""

    metadata = MetaData(naming_convention=NAMING_CONVENTION)


class Wei(TypeDecorator[int]):
    """Amount in wei: ``NUMERIC(78, 0)`` in the database (up to 2**256 - 1), ``int`` in Python."""

    impl = Numeric(78, 0)
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Dialect) -> Decimal | None:
        if value is None:
            return None
        if type(value) is not int:
            raise TypeError(f"wei must be int, got {type(value).__name__}")
        return Decimal(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> int | None:
        return None if value is None else int(value)


class UtcDateTime(TypeDecorator[datetime]):
    """Timezone-aware instant, always UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is not None and value.tzinfo is None:
            raise TypeError("datetime without a time zone")
        return value

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)


Address = String(42)  # checksummed 0x address
Hash32 = String(66)  # lower-case 0x hash of 32 bytes
Cid = String(128)


class CreatedAt:
    """Mixin of the time of the insert, by the database's clock."""

    created_at: Mapped[datetime] = mapped_column(UtcDateTime, server_default=func.clock_timestamp())


def utc_now() -> datetime:
    """Return the current instant in UTC."""
    return datetime.now(UTC)


def from_unix(seconds: int) -> datetime:
    """Return the instant of a Unix timestamp."""
    return datetime.fromtimestamp(seconds, UTC)
