"""Sessions, units of work and locks on PostgreSQL.

A unit of work is one short transaction. Wake-ups for background workers that are asked for inside it are sent
only after it has committed, and dropped when it rolls back; a lost one is made up by the periodic sweep.
"""

import asyncio
import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

from sqlalchemy import create_engine, event, func, select, text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

Wake = Callable[[str, tuple[str, ...]], None]


_PENDING = "pending_wakeups"


_FEW = 4


_TRUSTED_SECONDS = 1.0  # a connection that rested longer is tried before it is used


class UnitOfWork(Protocol):
    """A session, or a :class:`SingleStatement`: what prepared statements are executed in."""

    @property
    def info(self) -> dict[Any, Any]:
        """What is remembered until its end."""

    def connection(self) -> Connection:
        """What to execute a statement with."""


class SingleStatement:
    """A unit of work of one prepared statement.

    It keeps no objects and begins no transaction: for one statement, a session costs as much as the statement.
    """

    def __init__(self, connection: Connection) -> None:
        self.info: dict[Any, Any] = {}
        self._connection: Connection | None = connection

    def connection(self) -> Connection:
        """What to execute the statement with. Raises RuntimeError for a second one."""
        if self._connection is None:
            raise RuntimeError("a second statement in a unit of work of one")
        connection, self._connection = self._connection, None
        return connection


def enqueue_after_commit(unit: UnitOfWork, task: str, *arguments: str) -> None:
    """Ask that background ``task`` runs once this unit of work has committed."""
    pending: dict[tuple[str, tuple[str, ...]], None] = unit.info.setdefault(_PENDING, {})
    pending[(task, arguments)] = None


def database_now(session: Session) -> datetime:
    """The instant by the database's clock: the one clock that all processes share."""
    now: datetime = session.scalars(select(func.clock_timestamp())).one()
    return now.astimezone(UTC)


def psycopg_url(url: str) -> str:
    """The SQLAlchemy URL for our driver; operators give a plain ``postgresql://`` one."""
    return "postgresql+psycopg://" + url.removeprefix("postgresql://") if url.startswith("postgresql://") else url


class Database:
    """One engine and its session factory; built once per process, after fork."""

    def __init__(self, url: str, *, wake: Wake | None = None, pool_size: int = 10, max_overflow: int = 40) -> None:
        """
        Args:
            url: SQLAlchemy URL (``postgresql+psycopg://…``; a plain ``postgresql://`` is accepted).
            wake: sends one background task by name; None in processes that wake nobody.

        Attributes:
            turns: for coroutines that keep a transaction open over several steps in threads. They take a turn first,
                one less than there are connections; otherwise they could hold all connections while every thread
                that they need to go on waits for one.
        """
        self.engine: Engine = create_engine(
            psycopg_url(url), pool_size=pool_size, max_overflow=max_overflow, pool_use_lifo=True
        )
        _try_rested_connections(self.engine)
        self.turns = asyncio.Semaphore(max(1, pool_size + max_overflow - 1))
        self._few = threading.BoundedSemaphore(min(_FEW, pool_size))
        self._sessions = sessionmaker(self.engine, expire_on_commit=False)
        self._plain = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        self._readers = sessionmaker(self._plain, autoflush=False)
        self._wake = wake
        event.listen(self._sessions, "after_commit", lambda session: _send(session, wake))
        event.listen(self._sessions, "after_rollback", lambda session: session.info.pop(_PENDING, None))

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """A unit of work: commits at the end of the block, rolls back on any exception."""
        with self._sessions.begin() as session:
            yield session

    @contextmanager
    def single_statement(self) -> Iterator[SingleStatement]:
        """A unit of work of one statement, which is all or nothing by itself: it spares the trips of BEGIN and COMMIT.

        A second statement is refused.
        """
        with self._few, self._plain.connect() as connection:
            unit = SingleStatement(connection)
            yield unit
        _send(unit, self._wake)

    @contextmanager
    def read_throttled(self) -> Iterator[Session]:
        """As :meth:`reading`, for threads that read a few rows by their keys and do nothing else meanwhile.

        Only a few such readings and single statements go on at once. Each is over sooner than a further thread would
        get the interpreter, or a connection beyond those that the pool keeps would be open.
        """
        with self._few, self._readers() as session:
            yield session

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session to read with, and no transaction: BEGIN and COMMIT would be two more round trips for nothing.

        Each statement sees what is committed when it begins, as it does in a transaction of PostgreSQL's default level.
        Nothing may be written with it, and no lock outlives its statement.
        """
        with self._readers() as session:
            yield session

    @contextmanager
    def advisory_lock(self, name: str) -> Iterator[bool]:
        """A session-level advisory lock on a connection of its own; yields False when somebody else holds it.

        The lock ends with the connection, so a dead holder never blocks its successor. Names hold ids that strangers
        choose, by their nonces, so the key is of as many bits as the database takes: of 32, one that stands in the way
        of the sweep or of a placement is soon found.
        """
        key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
        with self.engine.connect() as connection:
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
            held = bool(connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": key}).scalar())
            try:
                yield held
            finally:
                if held:
                    connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": key})

    def dispose(self) -> None:
        """Close all pooled connections."""
        self.engine.dispose()


def _try_rested_connections(engine: Engine) -> None:
    """Replace connections that broke while they rested, as ``pool_pre_ping`` does, but spare those just used."""

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
            raise InvalidatePoolError from error  # the pool connects anew and tries again


def _send(unit: UnitOfWork, wake: Wake | None) -> None:
    pending = unit.info.pop(_PENDING, {})
    if wake is not None:
        for task, arguments in pending:
            wake(task, arguments)
