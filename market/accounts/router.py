"""Routes of sign-in, the caller's account, and API keys."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Request
from sqlalchemy.orm import Session

from market.accounts import service, spending
from market.accounts.deps import AdminAccount, CurrentAccount, Registry, SignedInAccount
from market.accounts.errors import (
    AccountNotFound,
    ApiKeyNotFound,
    NotPermitted,
    SessionRequired,
    SignInRefused,
    TooManyKeys,
)
from market.accounts.idempotency import IDEMPOTENT_ROUTE, IdempotentRoute
from market.accounts.models import Credential
from market.accounts.schemas import (
    AccountView,
    KeyRequest,
    KeyView,
    NewKeyView,
    NonceRequest,
    NonceView,
    Role,
    RolesRequest,
    RolesView,
    RotateRequest,
    SessionView,
    SignInRequest,
    SpendingView,
)
from market.chain.contracts.codec import Deployment
from market.platform.db.rows import from_row
from market.platform.http.deps import Reads, ServicesDep, Uow
from market.platform.http.refusals import refusals
from market.platform.http.scopes import scoped
from market.platform.http.types import AddressString, RowId

router = APIRouter(prefix="/v1", tags=["accounts"], route_class=IdempotentRoute)

KeyId = Annotated[RowId, Path(description="The key's id, from GET /v1/me/keys.")]
AccountAddress = Annotated[AddressString, Path(description="A wallet that has signed in at least once.")]
_KEY_REFUSALS = (SessionRequired, TooManyKeys)


@router.post("/auth/nonce", status_code=201)
def issue_nonce(body: NonceRequest, services: ServicesDep, session: Uow) -> NonceView:
    """Begin a sign-in: return the fields of the message to sign."""
    nonce = service.issue_nonce(session, body.address)
    return NonceView(
        nonce=nonce.nonce,
        domain=services.settings.domain,
        uri=services.settings.public_url,
        chain_id=services.part(Deployment).chain_id,
        statement=service.STATEMENT,
        expires_at=nonce.expires_at,
    )


@router.post("/auth/siwe", responses=refusals(SignInRefused))
def sign_in(body: SignInRequest, services: ServicesDep, session: Uow) -> SessionView:
    """Finish a sign-in with the signed EIP-4361 message; return a token for further requests."""
    issued = service.sign_in(
        session, services.settings, services.part(Deployment).chain_id, body.message, body.signature
    )
    return SessionView(token=issued.secret, expires_at=issued.credential.expires_at, address=issued.credential.address)


@router.delete("/auth/session", status_code=204, openapi_extra=scoped(None))
def sign_out(account: CurrentAccount, session: Uow) -> None:
    """End the session (or API key) that makes this request."""
    service.sign_out(session, account)


@router.get("/me", openapi_extra=scoped(None))
def get_me(account: CurrentAccount, services: ServicesDep, session: Reads) -> AccountView:
    """Return your account, its roles, and the scopes of this credential."""
    registered = services.part(Registry).kind_of(session, account.address)
    roles: list[Role] = ["user", *([registered] if registered else []), *sorted(account.roles)]  # type: ignore[list-item]
    scopes = sorted(account.scopes)
    return from_row(AccountView, account, roles=roles, credential=account.credential_kind, scopes=scopes)


@router.post("/me/keys", status_code=201, responses=refusals(*_KEY_REFUSALS), dependencies=[IDEMPOTENT_ROUTE])
def create_key(body: KeyRequest, account: SignedInAccount, session: Uow, request: Request) -> NewKeyView:
    """Create an API key for programs, with limited scopes and spending."""
    caps = None if body.spending is None else body.spending.caps()
    issued = service.create_key(session, account.address, body.name, body.expires_in_days, body.scopes, caps)
    return _new_key(session, request, issued)


@router.get("/me/keys")
def list_keys(account: CurrentAccount, session: Reads) -> list[KeyView]:
    """Return your usable API keys, newest first."""
    return [_key_view(session, key) for key in service.list_keys(session, account.address)]


@router.post(
    "/me/keys/{key_id}/rotate",
    status_code=201,
    responses=refusals(*_KEY_REFUSALS, ApiKeyNotFound),
    dependencies=[IDEMPOTENT_ROUTE],
)
def rotate_key(
    key_id: KeyId, body: RotateRequest, account: SignedInAccount, session: Uow, request: Request
) -> NewKeyView:
    """Create a secret with the same name, scopes, limit and expiry. The old one ends later."""
    issued = service.rotate_key(session, account.address, key_id, timedelta(hours=body.overlap_hours))
    return _new_key(session, request, issued)


@router.delete("/me/keys/{key_id}", status_code=204, responses=refusals(SessionRequired, ApiKeyNotFound))
def revoke_key(key_id: KeyId, account: SignedInAccount, session: Uow) -> None:
    """Revoke an API key at once."""
    service.revoke_key(session, account.address, key_id)


@router.put("/accounts/{address}/roles", responses=refusals(SessionRequired, NotPermitted, AccountNotFound))
def set_roles(address: AccountAddress, body: RolesRequest, account: AdminAccount, session: Uow) -> RolesView:
    """Grant an account exactly these roles, as an admin of the market. The audit log records it."""
    return RolesView(address=address, roles=service.set_roles(session, account, address, body.roles))


def _new_key(session: Session, request: Request, issued: service.Issued) -> NewKeyView:
    request.state.secret_fields = ("key",)
    return from_row(NewKeyView, _key_view(session, issued.credential), key=issued.secret)


def _key_view(session: Session, key: Credential) -> KeyView:
    used = None if key.limit_id is None else from_row(SpendingView, spending.usage(session, key.limit_id))
    return from_row(KeyView, key, spending=used)
