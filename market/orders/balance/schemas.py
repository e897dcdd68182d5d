"""Requests and answers of balances and deposits. Amounts: decimal wei."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from market.platform.http.types import RequestModel, SignatureString, WeiOut, WeiString


class NewDeposit(RequestModel):
    """A deposit with the caller's signature over its EIP-2612 permit."""

    amount: WeiString = Field(description="Wei of ZEN to move from the wallet into the balance.")
    permit_nonce: WeiString = Field(description="The nonce in the signed permit.")
    deadline: int = Field(ge=0, lt=2**53, description="The deadline in the signed permit, in Unix seconds.")
    signature: SignatureString


class DepositView(BaseModel):
    """A deposit that the market relays."""

    id: int
    amount_wei: WeiOut
    permit_nonce: WeiOut
    status: str = Field(
        description="queued, signed or broadcast: not on chain yet. mined: in the balance. final: it cannot be "
        "reorganised any more. reverted: nothing moved; see reason."
    )
    reason: str | None
    tx: str | None
    created_at: datetime


class BalanceView(BaseModel):
    """A payer's balance in the escrow contract, at the latest block."""

    available_wei: WeiOut = Field(description="Wei for new orders: balance_wei minus pending_wei.")
    balance_wei: WeiOut = Field(description="Wei in the contract; the payer can withdraw them at any time.")
    pending_wei: WeiOut = Field(description="Budgets of submitted jobs that are not opened yet.")
    wallet_wei: WeiOut
    deposits: list[DepositView] = Field(description="Deposits by the market, newest first, at most 20.")
    permit: dict[str, Any] | None = Field(
        description="With the parameter `deposit`: the EIP-712 document to sign for a deposit of this amount. It takes "
        "the nonce after all queued deposits."
    )
