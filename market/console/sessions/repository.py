"""Queries of the console's sessions."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, bindparam, delete, exists, select, update
from sqlalchemy.orm import Session

from market.accounts.models import Account
from market.console.sessions.models import ConsoleSession
from market.platform.db.base import Hash32, UtcDateTime
from market.platform.db.prepared import Prepared
from market.providers.models import Provider

Instant = datetime | ColumnElement[datetime]


@dataclass(frozen=True, slots=True)
class LiveSession:
    """Live session with its wallet's granted roles, and its kind as a node; None: no node."""

    id: int
    address: str
    chain_roles: list[str]
    roles_read_at: datetime | None
    seen_at: datetime
    granted_roles: list[str]
    node_kind: str | None


def _is_live(now: Instant, idle_since: Instant) -> tuple[ColumnElement[bool], ...]:
    return (
        ConsoleSession.ended_at.is_(None),
        ConsoleSession.expires_at > now,
        ConsoleSession.seen_at > idle_since,
    )


STILL_LIVE = exists().where(
    ConsoleSession.id == bindparam("console_session_id"),
    ConsoleSession.ended_at.is_(None),
    ConsoleSession.expires_at > bindparam("console_session_used_at"),
)
"""Condition that a session has not ended, for conditional writes."""


_LIVE = Prepared(
    select(
        *(ConsoleSession.id, ConsoleSession.address, ConsoleSession.chain_roles, ConsoleSession.roles_read_at),
        *(ConsoleSession.seen_at, Account.roles, Provider.kind),
    )
    .join(Account, Account.address == ConsoleSession.address)
    .outerjoin(Provider, Provider.address == ConsoleSession.address)
    .where(
        ConsoleSession.secret_hash == bindparam("secret_hash", type_=Hash32),
        *_is_live(bindparam("now", type_=UtcDateTime()), bindparam("idle_since", type_=UtcDateTime())),
    )
)
"""Every page reads its session first."""


def live_session(session: Session, secret_hash: str, now: datetime, idle_since: datetime) -> LiveSession | None:
    """Return the session of a cookie unless it is ended, expired or idle."""
    found = _LIVE.rows(session, {"secret_hash": secret_hash, "now": now, "idle_since": idle_since})
    return LiveSession(*found[0]) if found else None


def live_sessions(session: Session, address: str, now: datetime, idle_since: datetime) -> list[ConsoleSession]:
    """Return the wallet's live sessions, newest first."""
    found = select(ConsoleSession).where(ConsoleSession.address == address, *_is_live(now, idle_since))
    return list(session.scalars(found.order_by(ConsoleSession.id.desc())))


def mark_seen(session: Session, session_id: int, now: datetime) -> None:
    session.execute(update(ConsoleSession).where(ConsoleSession.id == session_id).values(seen_at=now))


def store_roles(session: Session, session_id: int, roles: Collection[str], now: datetime) -> None:
    values = {"chain_roles": sorted(roles), "roles_read_at": now}
    session.execute(update(ConsoleSession).where(ConsoleSession.id == session_id).values(values))


def end(session: Session, address: str, session_id: int | None, now: datetime) -> None:
    """End one of the wallet's sessions; None: all of them."""
    statement = update(ConsoleSession).where(ConsoleSession.address == address, ConsoleSession.ended_at.is_(None))
    if session_id is not None:
        statement = statement.where(ConsoleSession.id == session_id)
    session.execute(statement.values(ended_at=now))


def delete_before(session: Session, expired: datetime) -> None:
    session.execute(delete(ConsoleSession).where(ConsoleSession.expires_at < expired))
