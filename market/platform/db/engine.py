"""Engines on PostgreSQL whose connections, statements and locks all have a limit in time."""

import time
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import psycopg
from psycopg.abc import PQGen
from sqlalchemy import create_engine, event
from sqlalchemy.engine import Engine
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

from market.settings import Settings

_TRUSTED_SECONDS = 1.0  # a connection that was idle for longer is tested before its use
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Longest waits in seconds for a new connection, a statement, a lock, and the pool.

    Migrations have 0, which allows statements of any length.
    """

    connect: int = 5
    statement: float = 30.0
    lock: float = 10.0
    pool: float = 10.0

    @classmethod
    def of(cls, settings: Settings) -> Self:
        return cls(
            settings.database_connect_seconds,
            settings.database_statement_seconds,
            settings.database_lock_seconds,
            settings.database_pool_seconds,
        )


def psycopg_url(url: str) -> str:
    """Return the SQLAlchemy URL with the driver for a plain ``postgresql://`` URL."""
    return "postgresql+psycopg://" + url.removeprefix("postgresql://") if url.startswith("postgresql://") else url


def open_engine(url: str, timeouts: Timeouts, **options: Any) -> Engine:
    """Return an engine with these limits; ``options`` as of :func:`sqlalchemy.create_engine`."""
    engine = create_engine(psycopg_url(url), pool_timeout=timeouts.pool, **options)
    limits = f"-c statement_timeout={timeouts.statement * 1000:.0f} -c lock_timeout={timeouts.lock * 1000:.0f}"

    @event.listens_for(engine, "do_connect")
    def connect(dialect: object, entry: object, arguments: tuple[str, ...], named: dict[str, Any]) -> _Connection:
        named["connect_timeout"] = timeouts.connect
        named["options"] = f"{limits} {named.get('options', '')}"
        connection = _Connection.connect(*arguments, **named)
        if timeouts.statement:
            connection.answer_seconds = timeouts.statement + timeouts.connect  # the server's own limit comes first
        return connection

    _try_rested_connections(engine)
    return engine


class _Connection(psycopg.Connection[Any]):
    """Connection that ends when its server, which may be stopped, leaves a statement unanswered."""

    answer_seconds: float | None = None

    def wait(self, gen: PQGen[Result], interval: float = 0.1, timeout: float | None = None) -> Result:
        try:
            return super().wait(gen, interval, self.answer_seconds if timeout is None else timeout)
        except psycopg.errors._WaitTimeout:
            self.close()
            raise


def _try_rested_connections(engine: Engine) -> None:
    """Replace connections that broke while idle, without a ping for those just used."""

    @event.listens_for(engine, "checkin")
    def note(connection: DBAPIConnection | None, entry: ConnectionPoolEntry) -> None:
        entry.info["rests_since"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def try_out(connection: DBAPIConnection, entry: ConnectionPoolEntry, fairy: PoolProxiedConnection) -> None:
        since = entry.info.get("rests_since")
        if since is None or time.monotonic() - since < _TRUSTED_SECONDS:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise InvalidatePoolError from error  # the pool reconnects and retries
