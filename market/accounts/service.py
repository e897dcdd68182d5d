"""Sign-in with Ethereum (EIP-4361), sessions and API keys.

A bearer secret is 256 random bits; the database stores only its SHA-256, which suffices for random secrets. Contract
wallets (ERC-1271) can pay for jobs, but cannot sign in.
"""

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

import siwe
from sqlalchemy.orm import Session

from market.accounts import repository, spending
from market.accounts.errors import AccountNotFound, ApiKeyNotFound, SignInRefused, TooManyKeys
from market.accounts.models import Account, Credential, SiweNonce
from market.accounts.spending import Caps
from market.platform.db.base import utc_now
from market.platform.db.bulk_insert import Condition
from market.platform.events.service import record
from market.settings import Settings
from zoo_protocol.hashing import sha256, to_hex

STATEMENT = "Sign in to Zoo Compute."
NONCE_LIFE = timedelta(minutes=10)
CLOCK_SKEW = timedelta(minutes=1)

MAX_KEYS = 100

_PREFIX = {"session": "zcs_", "key": "zck_"}
Kind = Literal["session", "key"]
ALL_SCOPES = "*"
SCOPE_GROUPS = ("accounts", "jobs", "leases", "organisations", "providers", "storage", "webhooks")
"""Groups of routes (OpenAPI tags) in the scopes of a key, ``GROUP:read`` or ``GROUP:write``."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Caller of a request, with the kind and scopes of its credential."""

    address: str
    roles: frozenset[str]  # granted ones: admin | treasury
    credential_id: int
    credential_kind: Kind
    scopes: frozenset[str] = frozenset({ALL_SCOPES})
    limit_id: int | None = None

    @property
    def is_admin(self) -> bool:
        """Return True if the caller may change other accounts' resources."""
        return "admin" in self.roles

    @property
    def sees_all_jobs(self) -> bool:
        """Return True if the caller may read other accounts' jobs."""
        return not self.roles.isdisjoint({"admin", "treasury"})

    def may(self, scope: str) -> bool:
        """Return True if the credential covers ``GROUP:read`` or ``GROUP:write``."""
        group = scope.partition(":")[0]
        return not self.scopes.isdisjoint({ALL_SCOPES, scope, f"{group}:write"})


@dataclass(frozen=True, slots=True)
class Issued:
    """New credential with its secret, which is not stored."""

    credential: Credential
    secret: str


def issue_nonce(session: Session, address: str) -> SiweNonce:
    """Create a challenge that ``address`` (checksummed) can sign once within ten minutes."""
    row = SiweNonce(nonce=siwe.generate_nonce(), address=address, expires_at=utc_now() + NONCE_LIFE)
    session.add(row)
    return row


def sign_in(session: Session, settings: Settings, chain_id: int, message: str, signature: str) -> Issued:
    """Check a signed EIP-4361 message and open a session.

    Raises:
        SignInRefused: a field or the signature is wrong; ``field`` names it.
    """
    account = verify_sign_in(session, settings, chain_id, message, signature)
    return _issue(session, account, "session", "", utc_now() + timedelta(hours=settings.session_hours))


def verify_sign_in(session: Session, settings: Settings, chain_id: int, message: str, signature: str) -> Account:
    """Check a signed EIP-4361 message, use its nonce, and return the wallet's account.

    Raises:
        SignInRefused: a field or the signature is wrong; ``field`` names it.
    """
    now = utc_now()
    parsed = _verified(settings, chain_id, message, signature, now)
    issued_at = repository.use_nonce(session, parsed.nonce, parsed.address, now)
    if issued_at is None:
        raise SignInRefused("the nonce is unknown, used, expired or another wallet's", field="message.nonce")
    if not issued_at - CLOCK_SKEW <= datetime.fromisoformat(parsed.issued_at) <= now + CLOCK_SKEW:
        raise SignInRefused("issued-at is outside the validity of the nonce", field="message.issued_at")
    return repository.ensure_account(session, parsed.address)


def _verified(settings: Settings, chain_id: int, message: str, signature: str, now: datetime) -> siwe.SiweMessage:
    """Return the parsed message; nonce and issued-at are not checked."""
    try:
        parsed = siwe.SiweMessage.from_message(message)
    except ValueError as error:
        raise SignInRefused("the message is not in EIP-4361 form", field="message") from error
    if parsed.prepare_message() != message:
        raise SignInRefused("the message is not in canonical EIP-4361 form", field="message")
    if parsed.warnings:
        raise SignInRefused("the address is not checksummed (EIP-55)", field="message.address")
    if parsed.expiration_time is None:
        raise SignInRefused("the message has no expiration time", field="message.expiration_time")
    try:
        parsed.verify(
            signature,
            domain=settings.domain,
            uri=settings.public_url,
            chain_id=chain_id,
            nonce=parsed.nonce,
            timestamp=now,
            strict=True,
        )
    except siwe.DomainMismatch as error:
        raise SignInRefused(f"the domain must be {settings.domain}", field="message.domain") from error
    except siwe.UriMismatch as error:
        raise SignInRefused(f"the URI must be {settings.public_url}", field="message.uri") from error
    except siwe.ChainIdMismatch as error:
        raise SignInRefused(f"the chain id must be {chain_id}", field="message.chain_id") from error
    except siwe.ExpiredMessage as error:
        raise SignInRefused("the message has expired", field="message.expiration_time") from error
    except siwe.NotYetValidMessage as error:
        raise SignInRefused("the message is not valid yet", field="message.not_before") from error
    except siwe.InvalidSignature as error:
        raise SignInRefused("the signature is not that of the message's address", field="signature") from error
    return parsed


def create_key(
    session: Session, address: str, name: str, days: int, scopes: Sequence[str], caps: Caps | None
) -> Issued:
    """Create an API key that is valid for ``days``, for ``scopes`` only and within ``caps``.

    Raises:
        TooManyKeys: the account has ``MAX_KEYS`` usable ones.
    """
    account = repository.lock_account(session, address)
    _require_room(session, address)
    limit_id = None if caps is None else spending.create_limit(session, caps)
    return _issue(session, account, "key", name, utc_now() + timedelta(days=days), scopes, limit_id)


def rotate_key(session: Session, address: str, key_id: int, overlap: timedelta) -> Issued:
    """Create a secret for a key, with the same name, scopes, spending limit and expiry.

    The old secret stays valid for ``overlap``, so that programs can change one by one.

    Raises:
        ApiKeyNotFound: the account has no usable key with that id.
        TooManyKeys: the account has ``MAX_KEYS`` usable ones.
    """
    account = repository.lock_account(session, address)
    old = _usable_key(session, address, key_id)
    _require_room(session, address)
    issued = _issue(session, account, "key", old.name, old.expires_at, old.scopes, old.limit_id)
    old.expires_at = min(old.expires_at, utc_now() + overlap)
    return issued


def list_keys(session: Session, address: str) -> list[Credential]:
    return repository.live_keys(session, address, utc_now())


def revoke_key(session: Session, address: str, key_id: int) -> None:
    """Revoke an API key at once.

    Raises:
        ApiKeyNotFound: the account has no usable key with that id.
    """
    repository.revoke(session, _usable_key(session, address, key_id).id, address, utc_now())


def _usable_key(session: Session, address: str, key_id: int) -> Credential:
    for key in list_keys(session, address):
        if key.id == key_id:
            return key
    raise ApiKeyNotFound(f"no usable key {key_id}", field="key_id")


def _require_room(session: Session, address: str) -> None:
    if len(list_keys(session, address)) >= MAX_KEYS:
        raise TooManyKeys(f"{address} has {MAX_KEYS} usable keys")


def require_account(session: Session, address: str) -> Account:
    """Return the account of a wallet. Raises AccountNotFound if it never signed in."""
    account = repository.account(session, address)
    if account is None:
        raise AccountNotFound(f"{address} never signed in", field="address")
    return account


def set_roles(session: Session, actor: Principal, address: str, roles: Collection[str]) -> list[str]:
    """Grant exactly these roles (of admin and treasury) to an account.

    Raises:
        AccountNotFound: that wallet never signed in.
    """
    account = require_account(session, address)
    before, account.roles = account.roles, sorted(set(roles))
    data: dict[str, object] = {"before": before, "after": account.roles}
    record(session, ("account", address), "roles_set", actor=actor.address, data=data)
    return account.roles


def sign_out(session: Session, principal: Principal) -> None:
    """Revoke the credential of this request."""
    repository.revoke(session, principal.credential_id, principal.address, utc_now())


def authenticate(session: Session, secrets: Collection[str], admins: Collection[str] = ()) -> dict[str, Principal]:
    """Return the callers by bearer secret, without unknown, expired or revoked secrets.

    ``admins`` are admins independent of the database.
    """
    by_hash = {_hash(secret): secret for secret in secrets}
    found = repository.live_credentials(session, by_hash, utc_now())
    return {by_hash[credential.secret_hash]: _principal(credential, admins) for credential in found}


def still_live(principal: Principal) -> Condition:
    """Return the condition that the caller's credential is live, for a conditional write."""
    return Condition(repository.STILL_LIVE, {"credential_id": principal.credential_id, "credential_used_at": utc_now()})


def _principal(found: repository.LiveCredential, admins: Collection[str]) -> Principal:
    roles = frozenset({*found.roles, "admin"} if found.address in admins else found.roles)
    if found.kind == "session":
        return Principal(found.address, roles, found.id, "session")
    return Principal(found.address, roles, found.id, "key", frozenset(found.scopes), found.limit_id)


def _issue(
    session: Session,
    account: Account,
    kind: Kind,
    name: str,
    expires_at: datetime,
    scopes: Sequence[str] = (ALL_SCOPES,),
    limit_id: int | None = None,
) -> Issued:
    secret = _PREFIX[kind] + secrets.token_urlsafe(32)
    credential = Credential(
        secret_hash=_hash(secret),
        prefix=secret[:10],
        kind=kind,
        name=name,
        address=account.address,
        scopes=list(scopes),
        limit_id=limit_id,
        expires_at=expires_at,
    )
    session.add(credential)
    session.flush()
    return Issued(credential, secret)


def _hash(secret: str) -> str:
    return to_hex(sha256(secret.encode()))
