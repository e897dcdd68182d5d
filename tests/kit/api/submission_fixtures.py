"""Jobs over HTTP: a payer with a balance, a body, and a wallet's signatures."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from eth_account import Account as Wallets
from fastapi import FastAPI
from sqlalchemy import func, select

from kit.api.clients import Caller, accepted, sign_in
from kit.jobs.jobs_fixtures import SPEC, ZEN, FakeChain, store_dataset
from market.accounts.models import IdempotentRequest
from market.chain.models import TxIntent
from market.chain.views import ChainViews
from market.jobs.models import Job
from market.platform.http.services import Services
from market.platform.storage.client import Storage
from market.providers.models import SignerNonce

Body = dict[str, Any]


@pytest.fixture(name="chain")
def fake_chain() -> FakeChain:
    return FakeChain()


@pytest.fixture(name="app")
def app_on_chain(app: FastAPI, chain: FakeChain) -> FastAPI:
    app.state.services = app.state.services.with_part(ChainViews, chain)
    return app


@pytest.fixture(name="payer")
def funded_payer(api: httpx.Client, chain: FakeChain) -> Caller:
    caller = sign_in(api)
    chain.balances[caller.address] = 100 * ZEN
    chain.wallets[caller.address] = 10 * ZEN
    chain.permit_nonces[caller.address] = 3
    return caller


@pytest.fixture(name="dataset", scope="module")
def stored_dataset(storage: Storage) -> str:
    return store_dataset(storage)


@pytest.fixture(name="body")
def job_body(dataset: str) -> Body:
    """A job of about 0.07 ZEN per unit at its highest price."""
    return {
        **SPEC,
        "training_config": {**SPEC["training_config"], "inner_steps": 1000, "segment_steps": 100, "batch_size": 64},
        "data_config": {"dataset": dataset},
        "tier": "bronze",
        "nodes": 4,
        "budget_max": str(ZEN),
        "max_price": str(3 * ZEN),
        "wait_until": (datetime.now(UTC) + timedelta(hours=1)).isoformat(),
    }


def sign_job(caller: Caller, body: Body) -> Body:
    quote = accepted(caller.post("/v1/quotes", json=body))
    return {
        **body,
        "nonce": quote["nonce"],
        "order_signature": sign_document(caller, quote["order"]),
    }


def sign_document(caller: Caller, document: Body) -> str:
    signed = Wallets.sign_typed_data(caller.wallet.key, full_message=document)
    return "0x" + bytes(signed.signature).hex()


def written(services: Services) -> list[int]:
    with services.database.transaction() as session:
        tables = (Job, SignerNonce, TxIntent, IdempotentRequest)
        return [session.scalar(select(func.count()).select_from(table)) or 0 for table in tables]
