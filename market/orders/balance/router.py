"""Routes of balances and deposits."""

from typing import Annotated

from fastapi import APIRouter, Query

from market.accounts.deps import CurrentAccount
from market.accounts.idempotency import IDEMPOTENT_ROUTE, IdempotentRoute
from market.orders.balance import service
from market.orders.balance.schemas import BalanceView, DepositView, NewDeposit
from market.orders.errors import InsufficientBalance, InvalidDeposit, PermitNonceUsed
from market.platform.http.deps import ServicesDep, Uow
from market.platform.http.errors import ChainDown, InvalidSignature
from market.platform.http.refusals import refusals
from market.platform.http.types import WeiString

router = APIRouter(prefix="/v1", tags=["jobs"], route_class=IdempotentRoute)
Amount = Annotated[WeiString | None, Query(description="Wei of a deposit; the answer then has its permit.")]


@router.get("/balance", responses=refusals(InvalidDeposit, ChainDown))
def get_balance(account: CurrentAccount, services: ServicesDep, deposit: Amount = None) -> BalanceView:
    """Return the caller's balance in the escrow, which its orders draw from."""
    return service.balance(account.address, deposit, services)


@router.post(
    "/deposits",
    status_code=202,
    responses=refusals(InvalidDeposit, InvalidSignature, InsufficientBalance, PermitNonceUsed, ChainDown),
    dependencies=[IDEMPOTENT_ROUTE],
)
def create_deposit(body: NewDeposit, account: CurrentAccount, services: ServicesDep, session: Uow) -> DepositView:
    """Relay a deposit with the caller's permit. GET /v1/balance shows when it is on chain.

    A repeated request returns the first one's deposit.
    """
    return service.deposit(session, account.address, body, services)
