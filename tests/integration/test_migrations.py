"""The migrations make exactly the tables that the models describe, and can be taken back."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Engine, create_engine, inspect, text
from sqlalchemy.exc import DBAPIError

from market.tables import metadata

ROOT = Path(__file__).parents[2]


@pytest.fixture
def empty(postgres: str) -> Iterator[Engine]:
    """A database without tables."""
    name = "empty_" + secrets.token_hex(8)
    server = create_engine(postgres.format(database="postgres"), isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine = create_engine(postgres.format(database=name))
    yield engine
    engine.dispose()
    with server.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    server.dispose()


def migrate(engine: Engine, revision: str) -> None:
    config = Config(str(ROOT / "alembic.ini"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        (command.downgrade if revision == "base" else command.upgrade)(config, revision)


def test_migrations_make_what_the_models_describe(empty: Engine) -> None:
    migrate(empty, "head")
    with empty.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_migrations_install_the_ledgers_triggers(empty: Engine) -> None:
    migrate(empty, "head")
    journal = "INSERT INTO ledger_journals (kind, key) VALUES ('test', 'one-sided')"
    with pytest.raises(DBAPIError, match="sum to zero"), empty.begin() as connection:
        connection.execute(text(journal))


def test_migrations_can_be_taken_back_and_made_again(empty: Engine) -> None:
    migrate(empty, "head")
    migrate(empty, "base")
    assert set(inspect(empty).get_table_names()) <= {"alembic_version"}
    migrate(empty, "head")
