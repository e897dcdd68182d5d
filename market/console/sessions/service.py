"""Sessions of the console: sign-in by wallet, roles, end.

The cookie holds 256 random bits; the database holds their SHA-256. The CSRF token is an HMAC of the same bits.
"""

import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from market.accounts import service as accounts
from market.chain.contracts.codec import Deployment
from market.chain.errors import ChainError
from market.chain.views import ChainViews
from market.console.sessions import repository
from market.console.sessions.models import ConsoleSession
from market.console.sessions.roles import read_roles
from market.platform.db.base import utc_now
from market.platform.db.bulk_insert import Condition
from market.platform.events.service import record
from market.platform.http.services import Services
from zoo_protocol.hashing import sha256, to_hex

IDLE = timedelta(hours=1)
_ROLES_FRESH, _ROLES_VALID = timedelta(minutes=1), timedelta(minutes=10)
_SEEN_EVERY = timedelta(minutes=1)
_KEPT = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Visitor:
    """Wallet of a live session with its roles of the contracts and the market, and as a node."""

    address: str
    roles: frozenset[str]
    session_id: int
    csrf_token: str
    roles_are_old: bool


def sign_in(services: Services, message: str, signature: str, user_agent: str) -> tuple[str, datetime]:
    """Open a session for a signed EIP-4361 message; return the cookie's secret and its end.

    Raises:
        SignInRefused: a field or the signature is wrong, or the message was used before.
    """
    secret, now = secrets.token_urlsafe(32), utc_now()
    expires_at = now + timedelta(hours=services.settings.console_session_hours)
    chain_id = services.part(Deployment).chain_id
    with services.database.transaction() as session:
        address = accounts.verify_sign_in(session, services.settings, chain_id, message, signature).address
        row = ConsoleSession(
            secret_hash=_hash(secret),
            address=address,
            user_agent=user_agent.replace("\0", "")[:200],
            seen_at=now,
            expires_at=expires_at,
        )
        session.add(row)
        session.flush()
        record(session, ("account", address), "console_signed_in", actor=address, data={"session": row.id})
        repository.delete_before(session, now - _KEPT)
    refresh_roles(services, row.id, address)
    return secret, expires_at


def visitor_of(services: Services, secret: str) -> Visitor | None:
    """Return the wallet of a cookie; None if its session is unknown, ended, expired or idle."""
    now = utc_now()
    with services.database.reading() as session:
        row = repository.live_session(session, _hash(secret), now, now - IDLE)
    if row is None:
        return None
    if row.seen_at < now - _SEEN_EVERY:
        with services.database.transaction() as session:
            repository.mark_seen(session, row.id, now)
    roles = {row.node_kind} if row.node_kind else set()
    if row.roles_read_at is not None and row.roles_read_at > now - _ROLES_VALID:
        roles |= set(row.chain_roles)
    if "admin" in row.granted_roles or row.address in services.settings.admin_addresses:
        roles.add("support")
    are_old = row.roles_read_at is None or row.roles_read_at < now - _ROLES_FRESH
    return Visitor(row.address, frozenset(roles), row.id, csrf_token(secret), are_old)


def refresh_roles(services: Services, session_id: int, address: str) -> None:
    """Read the wallet's roles from the contracts. An unreachable chain changes nothing."""
    try:
        roles = read_roles(services.part(ChainViews), [address])[address]
    except ChainError:
        return
    with services.database.transaction() as session:
        repository.store_roles(session, session_id, roles, utc_now())


def list_sessions(session: Session, address: str) -> list[ConsoleSession]:
    now = utc_now()
    return repository.live_sessions(session, address, now, now - IDLE)


def still_live(visitor: Visitor) -> Condition:
    """Return the condition that the visitor's session has not ended, for a conditional write."""
    values = {"console_session_id": visitor.session_id, "console_session_used_at": utc_now()}
    return Condition(repository.STILL_LIVE, values)


def end_session(session: Session, address: str, session_id: int | None) -> None:
    """End one of the wallet's sessions, or all with None."""
    repository.end(session, address, session_id, utc_now())
    record(session, ("account", address), "console_ended", actor=address, data={"session": session_id or "all"})


def csrf_token(secret: str) -> str:
    """Return the token that forms of this session must send."""
    return hmac.new(secret.encode(), b"console-csrf", "sha256").hexdigest()


def _hash(secret: str) -> str:
    return to_hex(sha256(secret.encode()))
