"""Signature of a submission, without chain, storage and database."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from eth_account import Account

from market.chain.contracts.codec import Deployment
from market.domain.network import DEVNET, ZEN
from market.orders.quotes import quote
from market.orders.schemas import JobSpec, SubmitJob
from market.orders.terms import Terms, parse_terms, sign_terms
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
def deployment() -> Deployment:
    return Deployment("devnet", 31337, 0, {name: Account.create().address for name in CONTRACTS})


@pytest.fixture
def terms() -> Terms:
    return parse_terms(JobSpec.model_validate(JOB), DEVNET, NOW)


@pytest.fixture
def request_(terms: Terms, deployment: Deployment) -> SubmitJob:
    """The request of a payer that signs the order of its quote."""
    job = JobSpec.model_validate(JOB)
    known: dict[str, Any] = {"longest_round_seconds": 900.0, "last_price_wei": None, "nodes_of_tier": 4, "epochs": 1.0}
    quoted = quote(job, terms, WALLET.address, deployment, available_wei=-5, network=DEVNET, nonce=7, **known)
    assert (quoted.balance_wei, quoted.deposit_needed_wei) == (0, ZEN + 5)
    return SubmitJob.model_validate(JOB | {"nonce": "7", "order_signature": _sign(quoted.order)})


def _sign(document: dict[str, Any]) -> str:
    return "0x" + bytes(Account.sign_typed_data(WALLET.key, full_message=document).signature).hex()


def test_signed_quote_is_accepted(request_: SubmitJob, terms: Terms, deployment: Deployment) -> None:
    signed = sign_terms(request_, terms, WALLET.address, deployment)
    assert signed.order == terms.order(WALLET.address, 7)
    assert signed.job_id == struct_hash(signed.order)


def test_order_of_another_payer_is_refused(request_: SubmitJob, terms: Terms, deployment: Deployment) -> None:
    with pytest.raises(InvalidSignature) as refused:
        sign_terms(request_, terms, Account.create().address, deployment)
    assert refused.value.field == "order_signature"
