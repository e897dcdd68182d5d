"""Metadata and table parts of the baseline, copied: a migration imports no present models."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

ADDRESS, HASH = sa.String(42), sa.String(66)  # 0x hex of 20 and 32 bytes
CID = sa.String(128)
JSONB = postgresql.JSONB()
TIME = sa.DateTime(timezone=True)
WEI = sa.Numeric(78, 0)


def table(name: str, *parts: sa.schema.SchemaItem) -> None:
    """Add a table to the metadata."""
    sa.Table(name, metadata, *parts)


def columns(kind: Any, *names: str, **options: Any) -> list[sa.Column[Any]]:
    """Return columns of one type with equal options, in this order."""
    return [sa.Column(name, kind, **options) for name in names]


def created_at() -> sa.Column[Any]:
    """Return a new column with the time at which the row was inserted."""
    return sa.Column("created_at", TIME, nullable=False, server_default=sa.text("clock_timestamp()"))


def reference(table: str, name: str, target: str, **options: Any) -> sa.Column[Any]:
    """Return a column with the type of ``target``, whose table ends the constraint's name."""
    constraint = f"fk_{table}_{name}_{target.partition('.')[0]}"
    return sa.Column(name, sa.ForeignKey(target, name=constraint), **options)


def index(name: str, *names: str, where: str, unique: bool = False) -> sa.Index:
    """Return an index of the rows that meet ``where``."""
    return sa.Index(name, *names, unique=unique, postgresql_where=sa.text(where))
