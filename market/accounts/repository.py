"""Queries of accounts and credentials."""

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import ARRAY, any_, bindparam, delete, exists, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from market.accounts.models import Account, Credential, SiweNonce
from market.platform.db.base import Hash32
from market.platform.db.prepared import Prepared


def use_nonce(session: Session, nonce: str, address: str, now: datetime) -> datetime | None:
    """Mark an open nonce of the address as used; return its time of issue, or None."""
    statement = (
        update(SiweNonce)
        .where(
            SiweNonce.nonce == nonce,
            SiweNonce.address == address,
            SiweNonce.used_at.is_(None),
            SiweNonce.expires_at > now,
        )
        .values(used_at=now)
        .returning(SiweNonce.created_at)
    )
    return session.scalar(statement)


def account(session: Session, address: str) -> Account | None:
    return session.get(Account, address)


def lock_account(session: Session, address: str) -> Account:
    """Return an existing account, locked, so that one request at a time counts its keys."""
    return session.get_one(Account, address, with_for_update={"key_share": True})


def ensure_account(session: Session, address: str) -> Account:
    """Return the account of that wallet; create it at the first sign-in."""
    session.execute(insert(Account).values(address=address, roles=[]).on_conflict_do_nothing())
    return session.get_one(Account, address)


_LIVE_CREDENTIALS = Prepared(  # every request needs its caller
    select(
        Credential.secret_hash,
        Credential.id,
        Credential.kind,
        Credential.address,
        Credential.scopes,
        Credential.limit_id,
        Account.roles,
    )
    .join(Account, Account.address == Credential.address)
    .where(
        Credential.secret_hash == any_(bindparam("secret_hashes", type_=ARRAY(Hash32))),
        Credential.revoked_at.is_(None),
        Credential.expires_at > bindparam("now"),
    )
)

STILL_LIVE = exists().where(
    Credential.id == bindparam("credential_id"),
    Credential.revoked_at.is_(None),
    Credential.expires_at > bindparam("credential_used_at"),
)
"""Condition that a credential is unexpired and unrevoked, for conditional writes."""


class LiveCredential(NamedTuple):
    """Usable credential with the roles of its account."""

    secret_hash: str
    id: int
    kind: str
    address: str
    scopes: list[str]
    limit_id: int | None
    roles: list[str]


def live_credentials(session: Session, secret_hashes: Collection[str], now: datetime) -> list[LiveCredential]:
    """Return the unexpired, unrevoked credentials with those hashes."""
    rows = _LIVE_CREDENTIALS.rows(session, {"secret_hashes": list(secret_hashes), "now": now})
    return [LiveCredential(*row) for row in rows]


def live_keys(session: Session, address: str, now: datetime) -> list[Credential]:
    """Return the account's usable API keys, newest first."""
    statement = (
        select(Credential)
        .where(
            Credential.address == address,
            Credential.kind == "key",
            Credential.revoked_at.is_(None),
            Credential.expires_at > now,
        )
        .order_by(Credential.id.desc())
    )
    return list(session.scalars(statement))


def revoke(session: Session, credential_id: int, address: str, now: datetime) -> bool:
    """Revoke a credential of that account; return False if there is no such unrevoked one."""
    statement = (
        update(Credential)
        .where(Credential.id == credential_id, Credential.address == address, Credential.revoked_at.is_(None))
        .values(revoked_at=now)
        .returning(Credential.id)
    )
    return session.scalar(statement) is not None


def delete_expired(session: Session, now: datetime) -> None:
    """Delete expired nonces and sessions. API keys stay for the record."""
    session.execute(delete(SiweNonce).where(SiweNonce.expires_at < now))
    session.execute(delete(Credential).where(Credential.kind == "session", Credential.expires_at < now))
