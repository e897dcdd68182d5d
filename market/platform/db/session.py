"""Sessions, units of work and locks on PostgreSQL.

A unit of work is one short transaction. It sends the background tasks that were enqueued inside it after its commit,
and drops them on a rollback. The sweep repeats lost ones.
"""

import asyncio
import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

from sqlalchemy import event, func, select, text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.orm import Session, sessionmaker

from market.platform.db.engine import Timeouts, open_engine

EnqueueTask = Callable[[str, tuple[str, ...]], None]
_PENDING = "pending_tasks"
_FEW = 4


class UnitOfWork(Protocol):
    """Session or :class:`SingleStatement`: the context of a prepared statement."""

    @property
    def info(self) -> dict[Any, Any]:
        """Return the data kept until the unit's end."""

    def connection(self) -> Connection:
        """Return the connection for a statement."""


class SingleStatement:
    """Unit of work of one prepared statement, without the cost of a session and a transaction."""

    def __init__(self, connection: Connection) -> None:
        self.info: dict[Any, Any] = {}
        self._connection: Connection | None = connection

    def connection(self) -> Connection:
        """Return the connection for the statement. Raises RuntimeError on the second call."""
        if self._connection is None:
            raise RuntimeError("a second statement in a unit of work of one")
        connection, self._connection = self._connection, None
        return connection


def enqueue_after_commit(unit: UnitOfWork, task: str, *arguments: str) -> None:
    """Enqueue background ``task`` after this unit of work has committed."""
    pending: dict[tuple[str, tuple[str, ...]], None] = unit.info.setdefault(_PENDING, {})
    pending[(task, arguments)] = None


def database_now(session: Session) -> datetime:
    """Return the instant of the database's clock, which all processes share."""
    now: datetime = session.scalars(select(func.clock_timestamp())).one()
    return now.astimezone(UTC)


class Database:
    """Engine and session factory of a process; built after a fork.

    ``turns`` limits the coroutines that keep a transaction open over several steps in threads, to one less than there
    are connections. Otherwise they could hold all connections while every thread waits for one.

    Args:
        url: SQLAlchemy URL (``postgresql+psycopg://…`` or ``postgresql://…``).
        enqueue: enqueues one background task by name; None in processes that enqueue none.
    """

    def __init__(
        self,
        url: str,
        timeouts: Timeouts = Timeouts(),
        *,
        enqueue: EnqueueTask | None = None,
        pool_size: int = 10,
        max_overflow: int = 40,
    ) -> None:
        self.engine: Engine = open_engine(
            url, timeouts, pool_size=pool_size, max_overflow=max_overflow, pool_use_lifo=True
        )
        self.turns = asyncio.Semaphore(max(1, pool_size + max_overflow - 1))
        self._few = threading.BoundedSemaphore(min(_FEW, pool_size))
        self._sessions = sessionmaker(self.engine, expire_on_commit=False)
        self._plain = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        self._readers = sessionmaker(self._plain, autoflush=False)
        self._enqueue = enqueue
        event.listen(self._sessions, "after_commit", lambda session: _enqueue_pending(session, enqueue))
        event.listen(self._sessions, "after_rollback", lambda session: session.info.pop(_PENDING, None))

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Open a unit of work. It commits at the end of the block and rolls back on any exception."""
        with self._sessions.begin() as session:
            yield session

    @contextmanager
    def single_statement(self) -> Iterator[SingleStatement]:
        """Open a unit of work of one atomic statement, without BEGIN and COMMIT."""
        with self._few, self._plain.connect() as connection:
            unit = SingleStatement(connection)
            yield unit
        _enqueue_pending(unit, self._enqueue)

    @contextmanager
    def read_throttled(self) -> Iterator[Session]:
        """Open a session as :meth:`reading`, for threads that only read a few rows by their keys.

        Few such sessions and single statements run at once. Each ends sooner than another thread would get the
        interpreter, or the pool would open another connection.
        """
        with self._few, self._readers() as session:
            yield session

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Open a session that reads without a transaction, to save round trips.

        Each statement sees the rows committed before it, as at PostgreSQL's default isolation level. The session must
        not write, and locks end with their statement.
        """
        with self._readers() as session:
            yield session

    @contextmanager
    def advisory_lock(self, name: str) -> Iterator[bool]:
        """Take an advisory lock on its own connection; yield False if another session holds it.

        The lock ends with the connection, so a dead holder blocks no other process. The key has 64 bits, the
        database's maximum. Untrusted peers influence names by nonces and could find a collision of 32 bits.
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
        self.engine.dispose()


def _enqueue_pending(unit: UnitOfWork, enqueue: EnqueueTask | None) -> None:
    pending = unit.info.pop(_PENDING, {})
    if enqueue is not None:
        for task, arguments in pending:
            enqueue(task, arguments)
