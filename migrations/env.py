"""Alembic environment: the database URL of the settings, the metadata of all features."""

import os

from alembic import context
from sqlalchemy import Connection

from market.platform.db.base import UtcDateTime, Wei
from market.platform.db.engine import Timeouts, open_engine
from market.tables import metadata


def run() -> None:
    """Migrate over a test's connection, or over the database that ZOO_DATABASE_URL names."""
    connection = context.config.attributes.get("connection")
    if connection is not None:
        migrate(connection)
        return
    url = context.config.get_main_option("sqlalchemy.url") or os.environ.get("ZOO_DATABASE_URL")
    if not url:
        raise SystemExit(
            "ZOO_DATABASE_URL is not set: it names the database to migrate, postgresql://user:password@host/name"
        )
    engine = open_engine(url, Timeouts(statement=0))  # a new index may take long, but must not make others wait
    with engine.connect() as connection:
        migrate(connection)
    engine.dispose()


def render_item(kind: str, item: object, _context: object) -> str | bool:
    """Our own column types as plain ones, so that a migration never depends on today's code."""
    if kind == "type" and isinstance(item, Wei):
        return "sa.Numeric(78, 0)"
    if kind == "type" and isinstance(item, UtcDateTime):
        return "sa.DateTime(timezone=True)"
    return False


def migrate(connection: Connection) -> None:
    """All pending migrations in one transaction."""
    context.configure(connection=connection, target_metadata=metadata, render_item=render_item)
    with context.begin_transaction():
        context.run_migrations()


run()
