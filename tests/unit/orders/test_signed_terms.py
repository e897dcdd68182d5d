"""Signatures and balance of a submission, without chain, storage and database."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from eth_account import Account

from market.chain.contracts.codec import Deployment
from market.chain.views import Funds
from market.domain.network import DEVNET, ZEN
from market.orders.errors import InsufficientBalance, PermitTooShort
from market.orders.quotes import quote
from market.orders.schemas import JobSpec, SubmitJob
from market.orders.terms import PayerState, SignedTerms, Terms, check_order, parse_terms, sign_terms
from market.platform.http.errors import InvalidSignature
from zoo_protocol.contracts import CONTRACTS
from zoo_protocol.messages import struct_hash

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WALLET = Account.create()
JOB = {
    "data_config": {"dataset": "b" * 59},
    "tier": "bronze",
    "nodes": 1,
    "budget_max": str(ZEN),
    "max_price": str(ZEN),
    "wait_until": NOW + timedelta(hours=1),
}


@pytest.fixture
def state() -> PayerState:
    deployment = Deployment("devnet", 31337, 0, {name: Account.create().address for name in CONTRACTS})
    return PayerState(WALLET.address, deployment, Funds(balance_wei=ZEN, permit_nonce=3))


@pytest.fixture
def terms() -> Terms:
    return parse_terms(JobSpec.model_validate(JOB), DEVNET, NOW)


@pytest.fixture
def request_(terms: Terms, state: PayerState) -> SubmitJob:
    """The request of a payer that signs both documents of its quote."""
    job = JobSpec.model_validate(JOB)
    known: dict[str, Any] = {"longest_round_seconds": 900.0, "last_price_wei": None, "nodes_of_tier": 4}
    quoted = quote(job, terms, state, network=DEVNET, nonce=7, **known)
    permit = {"deadline": quoted.permit_deadline, "signature": _sign(quoted.permit)}
    return SubmitJob.model_validate(JOB | {"nonce": "7", "order_signature": _sign(quoted.order), "permit": permit})


def _sign(document: dict[str, Any]) -> str:
    return "0x" + bytes(Account.sign_typed_data(WALLET.key, full_message=document).signature).hex()


def _accepted(request: SubmitJob, terms: Terms, state: PayerState) -> SignedTerms:
    signature = check_order(request, terms, state.payer, state.deployment)
    return sign_terms(request, terms, signature, state)


def test_signed_quote_is_accepted(request_: SubmitJob, terms: Terms, state: PayerState) -> None:
    signed = _accepted(request_, terms, state)
    assert signed.order == terms.order(WALLET.address, 7)
    assert signed.job_id == struct_hash(signed.order)


@pytest.mark.parametrize(
    ("change", "error", "field"),
    [
        ({"funds": Funds(ZEN - 1, 3)}, InsufficientBalance, "budget_max"),
        ({"funds": Funds(ZEN, 4)}, InvalidSignature, "permit.signature"),
        ({"payer": Account.create().address}, InvalidSignature, "order_signature"),
    ],
    ids=["lower balance", "other permit", "other payer"],
)
def test_changed_payer_state_is_refused(
    request_: SubmitJob, terms: Terms, state: PayerState, change: dict[str, Any], error: type[Any], field: str
) -> None:
    with pytest.raises(error) as refused:
        _accepted(request_, terms, replace(state, **change))
    assert refused.value.field == field


def test_permit_is_refused_if_it_ends_early(request_: SubmitJob, terms: Terms, state: PayerState) -> None:
    early = request_.permit.model_copy(update={"deadline": int(terms.wait_until.timestamp()) - 1})
    with pytest.raises(PermitTooShort):
        _accepted(request_.model_copy(update={"permit": early}), terms, state)
