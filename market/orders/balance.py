"""Balances of payers in the escrow: what orders may take, and relayed deposits."""

import time
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from market.accounts import repository as accounts_repository
from market.chain.contracts import bindings
from market.chain.contracts.codec import Deployment
from market.chain.models import TxIntent
from market.chain.repository import DEPOSIT
from market.chain.service import queue_intent
from market.chain.views import ChainViews, Funds
from market.domain.lifecycle import IntentStatus
from market.domain.money import format_amount
from market.orders.errors import InsufficientBalance, InvalidDeposit, PermitNonceUsed
from market.orders.models import PayerDraws
from market.orders.schemas import BalanceView, DepositView, NewDeposit
from market.orders.signatures import require_signature, wallet_form
from market.platform.http.services import Services
from zoo_protocol.hashing import from_hex
from zoo_protocol.messages import permit_typed_data

TOKEN_NAME = "ZEN"
PERMIT_SECONDS = 3_600
_SHOWN_DEPOSITS = 20
_UINT96 = 2**96 - 1
_LEAST_SECONDS = 300  # a permit must live so long, so that the deposit can wait for its block
_REVERT_REASONS = {  # by the contracts' errors
    "ERC20InsufficientAllowance": "permit_not_usable",
    "ERC20InsufficientBalance": "insufficient_wallet",
    "EnforcedPause": "intake_paused",
}


def funds(payer: str, services: Services, max_age_seconds: float = 0.0) -> Funds:
    """Return the payer's balance in the escrow, possibly so old. Raises ChainError."""
    return services.part(ChainViews).funds(payer, max_age_seconds)


def pending_wei(session: Session, payer: str, found: Funds) -> int:
    """Return the budgets of accepted orders that are not opened yet."""
    total = session.scalar(select(PayerDraws.total_wei).where(PayerDraws.payer == payer)) or 0
    return max(0, total - found.drawn_wei)


def require(payer: str, budget_wei: int, services: Services) -> Funds:
    """Return fresh funds that cover one more order of this budget; call it with no session open.

    Raises:
        InsufficientBalance: with the missing amount.
        ChainError: the chain does not answer.
    """
    found = funds(payer, services)
    with services.database.reading() as session:
        pending = pending_wei(session, payer, found)
    missing = budget_wei - found.free_wei + pending
    if missing > 0:
        raise InsufficientBalance(
            f"budget_max is {format_amount(budget_wei)}. The balance of {payer} is {format_amount(found.free_wei)}, of "
            f"which orders that are not opened yet take {format_amount(pending)}.",
            field="budget_max",
            remedy=f"Deposit at least {format_amount(missing)} (GET /v1/balance?deposit={missing}, then POST "
            "/v1/deposits), or lower budget_max.",
            extra={"missing_wei": str(missing)},
        )
    return found


def release(session: Session, payer: str, budget_wei: int) -> None:
    """Subtract the budget of an accepted order that was not opened."""
    session.execute(
        update(PayerDraws).where(PayerDraws.payer == payer).values(total_wei=PayerDraws.total_wei - budget_wei)
    )


def record_foreign(session: Session, payer: str, budget_wei: int) -> None:
    """Add the budget of an opened order that the market had not accepted, or had rejected."""
    values = {"payer": payer, "total_wei": budget_wei, "covered_wei": budget_wei}
    total = PayerDraws.total_wei + budget_wei
    covered = func.greatest(PayerDraws.covered_wei, total)  # the contract has decided
    session.execute(
        insert(PayerDraws)
        .values(values)
        .on_conflict_do_update(index_elements=[PayerDraws.payer], set_={"total_wei": total, "covered_wei": covered})
    )


def balance(payer: str, deposit_wei: int | None, services: Services) -> BalanceView:
    """Return the payer's balance, and the permit for a deposit if one is asked for.

    Raises:
        InvalidDeposit, ChainError.
    """
    found = funds(payer, services)
    wallet_wei, nonce = services.part(ChainViews).wallet(payer)
    with services.database.reading() as session:
        pending = pending_wei(session, payer, found)
        deposits = _deposits(session, payer)
    permit = None
    if deposit_wei is not None:
        _require_amount(deposit_wei, "deposit")
        deadline = int(time.time()) + PERMIT_SECONDS
        document = _permit(payer, deposit_wei, _next_nonce(deposits, nonce), deadline, services.part(Deployment))
        permit = wallet_form(document)
    return BalanceView(
        available_wei=max(0, found.free_wei - pending),
        balance_wei=found.free_wei,
        pending_wei=pending,
        wallet_wei=wallet_wei,
        deposits=deposits,
        permit=permit,
    )


def deposit(session: Session, payer: str, request: NewDeposit, services: Services) -> DepositView:
    """Queue the deposit of a signed permit. A repeated request returns the queued deposit.

    Raises:
        InvalidDeposit, InvalidSignature: the amount, the deadline or the signature is wrong.
        InsufficientBalance: the wallet does not hold the amount.
        PermitNonceUsed: another deposit has this nonce.
        ChainError: the chain does not answer.
    """
    _require_amount(request.amount, "amount")
    document = _permit(payer, request.amount, request.permit_nonce, request.deadline, services.part(Deployment))
    signature = from_hex(require_signature(payer, document, request.signature, "signature"), 65)
    key = f"{DEPOSIT}:{payer}:{request.permit_nonce}:{request.deadline}:{request.amount}"
    accounts_repository.lock_account(session, payer)  # numbers concurrent deposits one after the other
    earlier = session.scalar(select(TxIntent).where(TxIntent.key == key))
    if earlier is None:
        _require_next(session, payer, request, services)
        call = bindings.JobEscrow.deposit(
            payer, request.amount, request.deadline, signature[64], signature[:32], signature[32:64]
        )
        earlier = queue_intent(session, key=key, kind=DEPOSIT, subject=payer, **call)
    return _view(earlier)


def _require_next(session: Session, payer: str, request: NewDeposit, services: Services) -> None:
    if request.deadline < time.time() + _LEAST_SECONDS:
        raise InvalidDeposit(
            f"deadline is {request.deadline}; expected at least {_LEAST_SECONDS} s from now.", field="deadline"
        )
    wallet_wei, nonce = services.part(ChainViews).wallet(payer)
    deposits = _deposits(session, payer)
    expected = _next_nonce(deposits, nonce)
    if request.permit_nonce != expected:
        raise PermitNonceUsed(
            f"permit_nonce is {request.permit_nonce}; expected {expected}, after the deposits so far.",
            field="permit_nonce",
        )
    queued_wei = sum(one.amount_wei for one in deposits if one.permit_nonce >= nonce and one.status != _REVERTED)
    if wallet_wei - queued_wei < request.amount:
        raise InsufficientBalance(
            f"amount is {format_amount(request.amount)}; {payer} holds {format_amount(wallet_wei)}, of which queued "
            f"deposits take {format_amount(queued_wei)}.",
            field="amount",
            remedy="Lower the amount, or transfer ZEN to the payer's address first.",
        )


_REVERTED = IntentStatus.REVERTED.value


def _next_nonce(deposits: list[DepositView], nonce: int) -> int:
    """Return the nonce after the chain's and those of all deposits that can still be mined."""
    return max([nonce, *(one.permit_nonce + 1 for one in deposits if one.status != _REVERTED)])


def _deposits(session: Session, payer: str) -> list[DepositView]:
    mine = select(TxIntent).where(TxIntent.subject == payer, TxIntent.kind == DEPOSIT)
    return [_view(intent) for intent in session.scalars(mine.order_by(TxIntent.id.desc()).limit(_SHOWN_DEPOSITS))]


def _view(intent: TxIntent) -> DepositView:
    _, _, nonce, _, amount = intent.key.split(":")
    error = (intent.detail or "").partition("(")[0]
    return DepositView(
        id=intent.id,
        amount_wei=int(amount),
        permit_nonce=int(nonce),
        status=intent.status,
        reason=_REVERT_REASONS.get(error, "deposit_reverted") if intent.status == IntentStatus.REVERTED else None,
        tx=intent.tx_hash,
        created_at=intent.created_at,
    )


def _permit(payer: str, amount_wei: int, nonce: int, deadline: int, deployment: Deployment) -> dict[str, Any]:
    token, escrow = deployment.address("ZenToken"), deployment.address("JobEscrow")
    return permit_typed_data(deployment.chain_id, token, TOKEN_NAME, payer, escrow, amount_wei, nonce, deadline)


def _require_amount(amount_wei: int, field: str) -> None:
    if not 0 < amount_wei <= _UINT96:
        raise InvalidDeposit(
            f"{field} is {amount_wei} wei.", field=field, remedy=f"Give an amount from 1 to {_UINT96} wei."
        )
