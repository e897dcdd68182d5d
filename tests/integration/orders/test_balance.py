"""Balances that orders draw from: bounded acceptance, relayed deposits, a client's threads."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from kit.api.clients import Caller, Cli, accepted, refusal
from kit.api.submission_fixtures import (  # noqa: F401  (fixtures)
    Body,
    app_on_chain,
    fake_chain,
    funded_payer,
    job_body,
    sign_document,
    sign_job,
    stored_dataset,
)
from kit.chain.anvil import AnvilProcess
from kit.chain.deployed_chain import PAYER, Chain, deploy_own
from kit.errors import raises_code
from kit.jobs.jobs_fixtures import SPEC, ZEN, FakeChain, at_once, opened
from kit.waiting import drain, wait_until
from sqlalchemy import select

from market.chain import repository as chain_repository
from market.chain.contracts.codec import Deployment
from market.chain.models import TxIntent
from market.chain.views import ChainViews
from market.domain.lifecycle import IntentStatus
from market.domain.network import DEVNET
from market.jobs.models import Job
from market.jobs.service import get
from market.ledger.reconciliation import reconcile
from market.orders import submission
from market.platform.db.session import Database
from market.platform.http.services import Services
from worker.chain_handlers import INTENT_HANDLERS, event_handlers
from zoo_compute.base.errors import ZooError
from zoo_compute.client.client import Client
from zoo_compute.client.jobspec import JobSpec


def _balance(caller: Caller, **query: str) -> dict[str, Any]:
    found: dict[str, Any] = accepted(caller.get("/v1/balance", params=query))
    return found


def _signed_deposit(caller: Caller, amount: int) -> Body:
    permit = _balance(caller, deposit=str(amount))["permit"]
    message = permit["message"]
    return {
        "amount": str(amount),
        "permit_nonce": message["nonce"],
        "deadline": int(message["deadline"]),
        "signature": sign_document(caller, permit),
    }


def test_concurrent_orders_never_exceed_balance(payer: Caller, body: Body, chain: FakeChain) -> None:
    chain.balances[payer.address] = 5 * ZEN
    signed = [sign_job(payer, body) for _ in range(10)]
    answers: list[httpx.Response] = []
    url = f"{payer.api.base_url}/v1/jobs"

    def submit(index: int) -> None:
        key = {"Idempotency-Key": str(index)} if index % 2 else {}  # with a transaction, or as one statement
        answers.append(httpx.post(url, json=signed[index], headers=payer.headers | key, timeout=60))

    assert at_once([lambda index=index: submit(index) for index in range(10)]) == [None] * 10
    assert sorted(answer.status_code for answer in answers) == [201] * 5 + [422] * 5
    problem = next(answer for answer in answers if answer.status_code == 422).json()
    assert (problem["code"], problem["missing_wei"]) == ("insufficient-balance", str(ZEN))
    assert f"deposit={ZEN}" in problem["remedy"]
    found = _balance(payer)
    assert (found["available_wei"], found["pending_wei"]) == ("0", str(5 * ZEN))


def test_opened_rejected_and_foreign_orders_count_once(
    services: Services, payer: Caller, body: Body, chain: FakeChain
) -> None:
    chain.balances[payer.address] = 3 * ZEN
    first, second = (payer.post("/v1/jobs", json=sign_job(payer, body)).json()["id"] for _ in range(2))

    def expect(available: int, pending: int) -> None:
        found = _balance(payer)
        assert (found["available_wei"], found["pending_wei"]) == (str(available * ZEN), str(pending * ZEN))

    expect(1, 2)
    chain.balances[payer.address], chain.drawn[payer.address] = 2 * ZEN, ZEN  # the first is mined, and not final
    expect(1, 1)
    with services.database.transaction() as session:
        order = get(session, first).order
        submission.on_job_opened(session, opened(order))
        intent = session.scalars(select(TxIntent).where(TxIntent.subject == second)).one()
        intent.status, intent.detail = IntentStatus.REVERTED, "InsufficientBalance(needed=1)"
        submission.on_open_intent(session, intent)
    expect(2, 0)
    chain.balances[payer.address], chain.drawn[payer.address] = 0, 3 * ZEN
    with services.database.transaction() as session:  # others relay the rejected order, and a foreign one
        submission.on_job_opened(session, opened(get(session, second).order))
        submission.on_job_opened(session, opened(replace(order, nonce=1)))
    expect(0, 0)
    refusal(payer.post("/v1/jobs", json=sign_job(payer, body)), 422, "insufficient-balance")
    chain.balances[payer.address] = ZEN
    accepted(payer.post("/v1/jobs", json=sign_job(payer, body)), 201)
    refusal(payer.post("/v1/jobs", json=sign_job(payer, body)), 422, "insufficient-balance")


def test_deposits_are_numbered_and_sent_in_order(services: Services, payer: Caller) -> None:
    first = _signed_deposit(payer, ZEN)
    assert first["permit_nonce"] == "3"
    made = [accepted(payer.post("/v1/deposits", json=first), 202) for _ in range(2)]
    assert made[0] == made[1]  # relayed once
    problem = refusal(payer.post("/v1/deposits", json=_signed_deposit_at(payer, first, 3)), 409, "permit-nonce-used")
    assert problem["field"] == "permit_nonce"
    second = accepted(payer.post("/v1/deposits", json=_signed_deposit(payer, 2 * ZEN)), 202)
    assert second["permit_nonce"] == "4"
    refusal(payer.post("/v1/deposits", json=_signed_deposit(payer, 8 * ZEN)), 422, "insufficient-balance")

    def next_queued() -> int | None:
        with services.database.transaction() as session:
            found = chain_repository.next_queued(session, "operator", made[0]["id"])
            return None if found is None else found.id

    assert next_queued() is None
    with services.database.transaction() as session:
        intent = session.get_one(TxIntent, made[0]["id"])
        intent.status, intent.detail = IntentStatus.REVERTED, "ERC20InsufficientAllowance(needed=1)"
    assert next_queued() == second["id"]
    shown = _balance(payer)["deposits"]
    assert [(one["id"], one["status"], one["reason"]) for one in shown] == [
        (second["id"], "queued", None),
        (made[0]["id"], "reverted", "permit_not_usable"),
    ]


def _signed_deposit_at(caller: Caller, earlier: Body, nonce: int) -> Body:
    permit = _balance(caller, deposit=str(2 * ZEN))["permit"]
    permit["message"]["nonce"] = str(nonce)
    signature = sign_document(caller, permit)
    deadline = int(permit["message"]["deadline"])
    return earlier | {"amount": str(2 * ZEN), "deadline": deadline, "signature": signature}


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"amount": "0"}, "invalid-deposit", "amount"),
        ({"amount": str(2**96)}, "invalid-deposit", "amount"),
        ({"amount": "1"}, "invalid-signature", "signature"),
        ({"permit_nonce": "4"}, "invalid-signature", "signature"),
        ({"signature": "0x12"}, "invalid-signature", "signature"),
        ({"deadline": -1}, "invalid-request", "deadline"),
        ({"to": "me"}, "invalid-request", "to"),
    ],
)
def test_invalid_deposit_is_refused_by_field(payer: Caller, change: Body, code: str, field: str) -> None:
    problem = payer.post("/v1/deposits", json=_signed_deposit(payer, ZEN) | change).json()
    assert (problem["code"], problem["field"]) == (code, field), problem
    refusal(payer.get("/v1/balance", params={"deposit": "0"}), 422, "invalid-deposit")


class Relay:
    """The market's sender and indexer on a real chain, until the end of the test."""

    def __init__(self, chain: Chain, database: Database) -> None:
        self.chain, self.database = chain, database
        self._sender = chain.sender(database, INTENT_HANDLERS)
        self._indexer = chain.indexer(database, event_handlers(DEVNET, chain.deployment))
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._end.wait(0.2):
            drain(self._sender)
            drain(self._indexer)

    def __enter__(self) -> "Relay":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def statuses(self) -> list[str]:
        self.chain.anvil.mine()
        with self.database.transaction() as session:
            return list(session.scalars(select(Job.status)))


@pytest.mark.parametrize("prepaid", [pytest.param(True, marks=pytest.mark.long), False])
def test_ten_threads_submit_and_all_jobs_open(
    app: FastAPI,
    api: httpx.Client,
    own_anvil: AnvilProcess,
    database: Database,
    dataset: str,
    cli: Cli,
    tmp_path: Path,
    prepaid: bool,
) -> None:
    chain = deploy_own(own_anvil, tmp_path)
    services: Services = app.state.services
    settings = services.settings.model_copy(update={"public_rpc_url": own_anvil.url})
    services = replace(services, settings=settings).with_part(Deployment, chain.deployment)
    app.state.services = services.with_part(ChainViews, chain.views)
    cli.be(PAYER.key)
    spec = JobSpec(dataset=dataset, budget_max=ZEN, model=SPEC["model_config"], training=SPEC["training_config"])
    with Client(str(api.base_url), private_key=PAYER.key) as client, Relay(chain, database) as relay:
        if prepaid:
            assert cli.json("balance", "deposit", 10)["amount_wei"] == str(10 * ZEN)
        before = len(client.balance().deposits)
        assert at_once([lambda: client.submit(spec)] * 10) == [None] * 10
        assert len(client.balance().deposits) == (before if prepaid else 10)
        wait_until(lambda: relay.statuses() == ["matching"] * 10)
        with raises_code(ZooError, "nothing-available"):
            client.withdraw()
        client.deposit(3 * ZEN)
        assert cli.json("balance", "withdraw", 1)["amount_wei"] == str(ZEN)
        assert client.withdraw()[0] == 2 * ZEN
        wait_until(lambda: bool(relay.statuses()) and client.balance().balance_wei == 0)
    found = reconcile(database, chain.client(), chain.deployment)
    assert found.agrees, found.differences
