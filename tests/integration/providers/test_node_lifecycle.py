"""A node's way to its tier and back, with a real training process."""

import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from eth_account import Account
from kit.records import Records, account, stake, verifier

from market.platform.db.base import utc_now
from market.providers.benchmarks import service as benchmarks
from market.providers.models import BenchmarkRun, Provider
from training_gym.runtime.profile import CPU
from zoo_compute.base.errors import ZooError
from zoo_compute.chain.wallet import Wallet
from zoo_compute.client.http import Connection
from zoo_compute.node.config import NodeConfig
from zoo_compute.node.execution.executor import Executor
from zoo_compute.node.lifecycle import NodeLifecycle
from zoo_compute.node.market.calls import Market
from zoo_protocol.hashing import to_hex


@pytest.fixture(scope="module")
def prover(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    """A training child with enough memory for the hardware proof."""
    with Executor(CPU, 8 << 30, tmp_path_factory.mktemp("prover")) as running:
        yield running


@pytest.fixture
def standing(api: httpx.Client, prover: Executor, tmp_path: Path) -> Iterator[NodeLifecycle]:
    wallet = Wallet(to_hex(bytes(Account.create().key)))
    config = NodeConfig(str(api.base_url), "provider", tmp_path, "n")
    with closing(Connection(config.api_url, wallet=wallet)) as connection:
        standing = NodeLifecycle(config, Market(connection), wallet, prover)
        standing.register(prover.environment_class)
        yield standing
        standing.close()


def heartbeat(standing: NodeLifecycle) -> dict[str, object]:
    return standing._market.poll(standing.sign_challenge)[0]


def test_node_earns_tier_and_repeats_benchmark_on_request(standing: NodeLifecycle, records: Records) -> None:
    assert (heartbeat(standing)["counted"], heartbeat(standing)["status"]) == (True, "registered")
    standing.advance("registered")
    state = heartbeat(standing)
    assert (state["status"], state["tier"], state["benchmark_by"]) == ("benchmarked", "bronze", None)

    records.change(Provider, standing._wallet.address, rebenchmark_at=datetime.now(UTC))
    assert heartbeat(standing)["benchmark_by"] is not None
    with standing._executor.reserve():  # a unit trains: the heartbeats continue
        standing.advance("active", must_prove=True)
        standing.advance("active", must_prove=True)
        assert heartbeat(standing)["benchmark_by"] is not None
    standing.close()
    assert heartbeat(standing)["benchmark_by"] is None
    assert records.call(lambda session: [run.reason for run in session.query(BenchmarkRun)]) == ["passed", "passed"]


def test_node_with_changed_environment_class_reports_it(
    standing: NodeLifecycle, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its device or its libraries changed: units of its former class are none for it any more."""
    monkeypatch.setattr(standing._executor, "last_class", "0x" + "cc" * 32)
    for _ in range(2):
        standing.advance("suspended")
    assert records.get(Provider, standing._wallet.address).environment_class == "0x" + "cc" * 32


def test_demoted_node_sends_heartbeats_during_benchmark(standing: NodeLifecycle, records: Records) -> None:
    """A proof that waits for a unit must not break the node's uptime commitment."""
    standing.advance("registered")
    records.change(Provider, standing._wallet.address, status="demoted")
    holds, release = threading.Event(), threading.Event()

    def train() -> None:
        with standing._executor.reserve():
            holds.set()
            release.wait(30)

    unit = threading.Thread(target=train)
    unit.start()
    holds.wait()
    try:
        standing.advance("demoted")
        standing.advance("demoted")
        assert heartbeat(standing)["status"] == "demoted"
        assert unit.is_alive()
    finally:
        release.set()
        unit.join()
    standing.close()
    assert heartbeat(standing)["status"] == "benchmarked"
    assert records.call(lambda session: [run.reason for run in session.query(BenchmarkRun)]) == ["passed", "passed"]


@pytest.mark.long
def test_node_waits_for_check_of_answer(standing: NodeLifecycle) -> None:
    standing._market._connection._retry_seconds = 0.1
    benchmarks._CHECKS.acquire()
    others = threading.Timer(3, benchmarks._CHECKS.release)
    others.start()
    try:
        standing.advance("registered")
    finally:
        others.join()
    assert heartbeat(standing)["status"] == "benchmarked"


def test_slow_node_is_notified_before_upload(
    standing: NodeLifecycle, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = Market.commit_benchmark

    def late(market: Market, benchmark_id: str, commitment: str) -> dict[str, object]:
        records.change(BenchmarkRun, benchmark_id, deadline_at=datetime(2020, 1, 1, tzinfo=UTC))
        return commit(market, benchmark_id, commitment)

    monkeypatch.setattr(Market, "commit_benchmark", late)
    with pytest.raises(ZooError) as refused:
        standing.advance("registered")
    assert refused.value.code == "benchmark-too-slow"


def test_provider_learns_number_of_possible_referees(
    standing: NodeLifecycle, records: Records, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "zoo_compute")

    def levels() -> list[str]:
        caplog.clear()
        standing.log_verifier_count(int(str(heartbeat(standing)["verifiers_of_class"])))
        return [record.levelname for record in caplog.records if "class" in record.message]

    assert levels() == ["WARNING"]
    assert "no_live_verifier" in caplog.text
    assert levels() == []  # once
    for expected in (["WARNING"], ["INFO"], []):
        put_verifier(records, standing._executor.environment_class)
        put_verifier(records, "0x" + "cc" * 32)  # of another class
        assert levels() == expected


def put_verifier(records: Records, environment: str) -> None:
    address = str(Account.create().address)
    node = verifier(address, environment_class=environment, last_seen_at=utc_now())
    records.add(account(address), node, stake(address, 10**18))
