"""The continuous comparison of ledger and chain: metrics, alarm, endpoint and command."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import structlog
from fastapi import FastAPI
from kit.api.clients import accepted, refusal
from kit.chain.deployed_chain import OTHER, PROVIDER, Chain
from kit.chain.faulty_rpc import FaultyRpc
from kit.errors import raising

from market.chain.contracts.codec import Deployment
from market.chain.service import queue_intent
from market.chain.views import ChainViews
from market.ledger import reconciliation
from market.ledger.reconciliation import watch
from market.ledger.service import post
from market.payments.settlement import router as settlement
from market.platform.db.session import Database
from zoo_compute.base.errors import ExitCode

ROOT = Path(__file__).parents[3]
ADDED = ("ledger_reconciled", "seconds")
"""What the route adds to a job's receipt."""


@pytest.fixture
def market(app: FastAPI, chain: Chain) -> Chain:
    app.state.services = app.state.services.with_part(ChainViews, chain.views).with_part(Deployment, chain.deployment)
    return chain


def command(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ZOO_")}
    return subprocess.run(
        [sys.executable, "-m", "zoo_compute", "admin", "reconcile", "--api-url", url, *options],
        env={**clean, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def metric(api: httpx.Client, name: str) -> float:
    lines = api.get("/metrics").text.splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + " "))


def plant(database: Database, wei: int) -> None:
    with database.transaction() as session:
        lines = [(f"stake:{PROVIDER.address}", -wei), (f"stake:{OTHER.address}", wei)]
        post(session, kind="planted", key="planted", lines=lines, block=1)


def test_agreement_and_difference_reach_metrics_alarm_and_command(
    market: Chain, database: Database, api: httpx.Client, server: tuple[FastAPI, str]
) -> None:
    market.stake(PROVIDER, 2**75)
    market.anvil.mine(3)
    market.index(database)
    client = market.client()
    with structlog.testing.capture_logs() as quiet:
        watch(database, client, market.deployment)
    assert quiet == []
    assert (metric(api, "zoo_ledger_reconciled"), metric(api, "zoo_ledger_difference_wei")) == (1, 0)
    assert metric(api, "zoo_ledger_reconciled_block") == client.finalised().number
    done = command(server[1], "--json")
    assert done.returncode == ExitCode.OK, done.stderr
    assert json.loads(done.stdout)["agrees"] is True

    plant(database, 2**70 + 1)
    with structlog.testing.capture_logs() as alarms:
        watch(database, client, market.deployment)
    [alarm] = alarms
    assert (alarm["log_level"], alarm["code"], alarm["difference_wei"]) == ("error", "ledger_differs", str(2**71 + 2))
    assert {found["name"] for found in alarm["differences"]} == {f"stake:{a.address}" for a in (PROVIDER, OTHER)}
    assert metric(api, "zoo_ledger_reconciled") == 0
    assert metric(api, "zoo_ledger_difference_wei") == float(2**71 + 2)
    done = command(server[1], "--json")
    assert done.returncode == ExitCode.MISMATCH
    assert json.loads(done.stdout)["difference_wei"] == str(2**71 + 2)
    assert json.loads(done.stderr)["error"]["code"] == "ledger-differs"
    plain = command(server[1])
    assert plain.returncode == ExitCode.MISMATCH
    assert str(2**75 - 2**70 - 1) in plain.stdout


def test_silent_node_keeps_last_result_without_alarm(market: Chain, database: Database, api: httpx.Client) -> None:
    market.index(database)
    watch(database, market.client(), market.deployment)
    compared_at = metric(api, "zoo_ledger_reconciled_timestamp_seconds")
    with FaultyRpc(market.anvil.url) as proxy:
        proxy.go_down()
        with structlog.testing.capture_logs() as logs:
            watch(database, market.client(proxy.url), market.deployment)
        assert [(entry["log_level"], entry["reason"]) for entry in logs] == [("warning", "rpc_unavailable")]
    assert metric(api, "zoo_ledger_reconciled") == 1
    assert metric(api, "zoo_ledger_reconciled_timestamp_seconds") == compared_at


def forbid_comparisons(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every read of the whole ledger and of the chain fail."""
    monkeypatch.setattr(reconciliation, "balances", raising(AssertionError("a reader summed the ledger")))
    app.state.services = app.state.services.with_part(ChainViews, None)


def test_readers_get_stored_comparison(
    market: Chain, database: Database, api: httpx.Client, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    market.index(database)
    refusal(api.get("/v1/ledger/reconciliation"), 503, "ledger-behind")
    watch(database, market.client(), market.deployment)
    forbid_comparisons(app, monkeypatch)
    found = accepted(api.get("/v1/ledger/reconciliation"))
    assert found["agrees"] is True
    assert found["block_number"] == market.client().finalised().number
    assert datetime.fromisoformat(found["compared_at"]) <= datetime.now(UTC)


def test_receipt_has_stored_comparison(
    market: Chain, database: Database, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    market.index(database)
    content = app.openapi()["paths"]["/v1/jobs/{job_id}/receipt"]["get"]["responses"]["200"]["content"]
    plain = {name: value for name, value in content["application/json"]["example"].items() if name not in ADDED}
    now = datetime.now(UTC)
    job = SimpleNamespace(created_at=now, first_step_at=now, settled_at=now)
    monkeypatch.setattr(settlement, "visible_job", lambda *_: job)
    monkeypatch.setattr(settlement, "job_receipt", lambda *_: plain)

    def is_reconciled() -> bool:
        account: Any = None
        return settlement.get_receipt("0x00", account, app.state.services).ledger_reconciled

    with monkeypatch.context() as patch:
        forbid_comparisons(app, patch)
        assert is_reconciled() is False
    watch(database, market.client(), market.deployment)
    forbid_comparisons(app, monkeypatch)
    assert is_reconciled() is True


@pytest.mark.long
def test_held_transactions_are_counted(market: Chain, database: Database, api: httpx.Client) -> None:
    assert "zoo_transactions_waiting{" not in api.get("/metrics").text
    with database.transaction() as session:
        queue_intent(
            session,
            key="pay",
            kind="payment",
            subject="pay",
            contract="ZenToken",
            function="transfer",
            arguments=[OTHER.address, 1],
            amount=10**30,
        )
    market.sender(database).step()
    assert 'zoo_transactions_waiting{reason="limit_per_transaction"} 1.0' in api.get("/metrics").text
