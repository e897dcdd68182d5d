"""Requests and responses of accounts."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from market.accounts.service import Kind
from market.api.types import AddressString, RequestModel, SignatureString


class NonceRequest(RequestModel):
    address: Annotated[AddressString, Field(examples=["0x70997970C51812dc3A010C7d01b50e0d17dc79C8"])]


class NonceView(BaseModel):
    """The fields that the EIP-4361 message must carry; ``expires_at`` may serve as its expiration time."""

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
    credential: Kind


class KeyRequest(RequestModel):
    name: Annotated[str, Field(min_length=1, max_length=64, examples=["training scripts"])]
    expires_in_days: Annotated[int, Field(ge=1, le=365)] = 90


class KeyView(BaseModel):
    id: int
    name: str
    prefix: Annotated[str, Field(description="How the key begins, to tell keys apart.")]
    created_at: datetime
    expires_at: datetime


class NewKeyView(KeyView):
    key: Annotated[str, Field(description="The key itself; it is not shown again.")]
