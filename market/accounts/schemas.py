"""Requests and responses of accounts."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

from market.accounts.service import ALL_SCOPES, SCOPE_GROUPS, Kind
from market.accounts.spending import Caps
from market.platform.http.types import AddressString, RequestModel, SignatureString, WeiOut, WeiString

_ADDRESS = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
_SCOPES = sorted([ALL_SCOPES, *(f"{group}:{access}" for group in SCOPE_GROUPS for access in ("read", "write"))])

GrantedRole = Literal["admin", "treasury"]
Role = Literal["user", "provider", "verifier", "treasury", "admin"]


def _known(scope: str) -> str:
    if scope not in _SCOPES:
        raise ValueError(f"there is no scope {scope!r:.40}; expected one of {', '.join(_SCOPES)}")
    return scope


Scope = Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": list(_SCOPES)})]


class NonceRequest(RequestModel):
    address: Annotated[AddressString, Field(examples=[_ADDRESS])]


class NonceView(BaseModel):
    """Fields of the EIP-4361 message; ``expires_at`` can be its expiration time."""

    nonce: str
    domain: str
    uri: str
    chain_id: int
    statement: str
    expires_at: datetime


class SignInRequest(RequestModel):
    message: Annotated[str, Field(max_length=4096, description="The EIP-4361 message, exactly as signed.")]
    signature: SignatureString


class SessionView(BaseModel):
    token: str
    expires_at: datetime
    address: str


class AccountView(BaseModel):
    address: str
    is_admin: bool
    roles: Annotated[
        list[Role],
        Field(description="Every account is a user. Providers and verifiers register; admins grant the other roles."),
    ]
    credential: Kind
    scopes: list[str]


class RolesRequest(RequestModel):
    roles: Annotated[list[GrantedRole], Field(max_length=2, examples=[["treasury"]])]


class RolesView(BaseModel):
    address: str
    roles: list[str]


class SpendingCaps(RequestModel):
    """Spending caps in wei of ZEN. A job counts with its budget, once settled with its cost."""

    per_job_wei: WeiString | None = None
    per_day_wei: Annotated[WeiString | None, Field(description="A day of UTC, by the time of submission.")] = None
    total_wei: WeiString | None = None

    def caps(self) -> Caps:
        return Caps(self.per_job_wei, self.per_day_wei, self.total_wei)


class SpendingView(BaseModel):
    """Caps (null: none) and spending, in wei of ZEN."""

    per_job_wei: WeiOut | None
    per_day_wei: WeiOut | None
    total_wei: WeiOut | None
    spent_today_wei: WeiOut
    spent_total_wei: WeiOut


class KeyRequest(RequestModel):
    name: Annotated[str, Field(min_length=1, max_length=64, examples=["training scripts"])]
    expires_in_days: Annotated[int, Field(ge=1, le=365)] = 90
    scopes: Annotated[
        list[Scope],
        Field(
            min_length=1,
            max_length=len(_SCOPES),
            description="Groups of routes that the key may read or write (which includes reading). "
            "`*`: all routes except those that require a session.",
            examples=[["jobs:write", "storage:write"]],
        ),
    ] = Field(default_factory=lambda: [ALL_SCOPES])
    spending: Annotated[SpendingCaps | None, Field(description="Caps on the jobs that this key submits.")] = None


class RotateRequest(RequestModel):
    overlap_hours: Annotated[int, Field(ge=0, le=168, description="Hours for which the old secret stays valid.")] = 24


class KeyView(BaseModel):
    id: int
    name: str
    prefix: Annotated[str, Field(description="First characters of the key, to identify it.")]
    scopes: list[str]
    spending: SpendingView | None
    created_at: datetime
    expires_at: datetime


class NewKeyView(KeyView):
    key: Annotated[
        str | None,
        Field(
            description="The key itself. It is not stored: a retry with the same Idempotency-Key returns null. "
            "Rotate the key then."
        ),
    ]
