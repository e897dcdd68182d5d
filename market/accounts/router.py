"""Sign-in, the caller's own account, and API keys."""

from fastapi import APIRouter

from market.accounts import service
from market.accounts.deps import CurrentAccount, SignedInAccount
from market.accounts.errors import ApiKeyNotFound, NotAuthenticated, SessionRequired, SignInRefused
from market.accounts.models import Credential
from market.accounts.schemas import (
    AccountView,
    KeyRequest,
    KeyView,
    NewKeyView,
    NonceRequest,
    NonceView,
    SessionView,
    SignInRequest,
)
from market.api.deps import ServicesDep, Uow
from market.api.openapi import refusals

router = APIRouter(prefix="/v1", tags=["accounts"])


@router.post("/auth/nonce", status_code=201)
def issue_nonce(body: NonceRequest, services: ServicesDep, session: Uow) -> NonceView:
    """Begin a sign-in: what the message that you sign must say."""
    nonce = service.issue_nonce(session, body.address)
    return NonceView(
        nonce=nonce.nonce,
        domain=services.settings.domain,
        uri=services.settings.public_url,
        chain_id=services.deployment.chain_id,
        statement=service.STATEMENT,
        expires_at=nonce.expires_at,
    )


@router.post("/auth/siwe", responses=refusals(SignInRefused))
def sign_in(body: SignInRequest, services: ServicesDep, session: Uow) -> SessionView:
    """Finish a sign-in with the signed EIP-4361 message; the token authorises all further requests."""
    issued = service.sign_in(session, services.settings, services.deployment.chain_id, body.message, body.signature)
    return SessionView(token=issued.secret, expires_at=issued.credential.expires_at, address=issued.credential.address)


@router.delete("/auth/session", status_code=204, responses=refusals(NotAuthenticated))
def sign_out(account: CurrentAccount, session: Uow) -> None:
    """End the session (or API key) that makes this request."""
    service.sign_out(session, account)


@router.get("/me", responses=refusals(NotAuthenticated))
def get_me(account: CurrentAccount) -> AccountView:
    """Who you are to the market."""
    return AccountView(address=account.address, is_admin=account.is_admin, credential=account.credential_kind)


@router.post("/me/keys", status_code=201, responses=refusals(NotAuthenticated, SessionRequired))
def create_key(body: KeyRequest, account: SignedInAccount, session: Uow) -> NewKeyView:
    """Make an API key for programs."""
    issued = service.create_key(session, account.address, body.name, body.expires_in_days)
    return NewKeyView(**_key_view(issued.credential).model_dump(), key=issued.secret)


@router.get("/me/keys", responses=refusals(NotAuthenticated))
def list_keys(account: CurrentAccount, session: Uow) -> list[KeyView]:
    """Your usable API keys, newest first."""
    return [_key_view(key) for key in service.list_keys(session, account.address)]


@router.delete(
    "/me/keys/{key_id}", status_code=204, responses=refusals(NotAuthenticated, SessionRequired, ApiKeyNotFound)
)
def revoke_key(key_id: int, account: SignedInAccount, session: Uow) -> None:
    """End an API key at once."""
    service.revoke_key(session, account.address, key_id)


def _key_view(key: Credential) -> KeyView:
    return KeyView(id=key.id, name=key.name, prefix=key.prefix, created_at=key.created_at, expires_at=key.expires_at)
