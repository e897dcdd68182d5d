"""Failures around a node cost it neither its process nor its units."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from eth_account import Account
from kit.errors import raises_code
from kit.nodes.lone_nodes import KEY, config_of

from training_gym.runtime.profile import CPU
from zoo_compute.base.errors import ConfigError, Unreachable
from zoo_compute.chain.disputes import Dispute, DisputePhase
from zoo_compute.chain.referees import Seat
from zoo_compute.chain.wallet import Block, Wallet
from zoo_compute.node.attestation import AttestationRenewal
from zoo_compute.node.background_services import ErrorThrottle, Payouts
from zoo_compute.node.config import NodeConfig
from zoo_compute.node.disk.files import lock_state_directory
from zoo_compute.node.disputes.referee import Referee, Verdicts
from zoo_compute.node.execution.executor import Executor
from zoo_compute.node.lifecycle import NodeLifecycle
from zoo_compute.node.market.calls import Market
from zoo_compute.node.process import run_node
from zoo_compute.node.work import acknowledgements
from zoo_compute.node.work.acknowledgements import Acknowledgements, Journal, NotAcknowledged
from zoo_protocol.hashing import to_hex
from zoo_protocol.messages import Acknowledgement, UnitCommitment, omissions_domain, sign, typed_data

OMISSIONS = "0x" + "e6" * 20
UNIT = UnitCommitment("0x" + "01" * 32, 1, 0, Account.from_key(KEY).address, "0x" + "02" * 32, "0x" + "03" * 32)


def test_chain_outage_costs_no_unit_with_known_acknowledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledgements, "_ROLE_SECONDS", -1.0)  # it is asked every time
    state = SimpleNamespace(away=True, holds=True)

    def asked(_: str) -> bool:
        if state.away:
            raise Unreachable("chain-unreachable", "no answer")
        return bool(state.holds)

    chain: Any = SimpleNamespace(is_acknowledger=asked, bond=lambda: 1, terms=lambda: SimpleNamespace(compensation=1))
    network: Any = SimpleNamespace(chain_id=1, contracts={"Omissions": OMISSIONS})
    taker = Acknowledgements(Journal(tmp_path), network, lambda: chain)
    promised = int(time.time()) + 60
    unit_id = acknowledgements.StoredAcknowledgement(UNIT, promised, "").unit_id
    message = typed_data(omissions_domain(1, OMISSIONS), Acknowledgement(unit_id, promised))
    answer = {"include_by": promised, "signature": sign(KEY, message)}
    with pytest.raises(NotAcknowledged):  # it is unknown whether it counts
        taker.take(UNIT, answer)
    state.away = False
    taker.take(UNIT, answer)
    state.away = True
    taker.take(UNIT, answer)
    state.away, state.holds = False, False
    for state.away in (False, True):  # an outage does not restore a lost acknowledgement
        with pytest.raises(NotAcknowledged):
            taker.take(UNIT, answer)


def test_chain_hiding_revealed_trace_ends_no_referee(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One of several nodes behind an RPC address is often some blocks behind the others."""
    seat = Seat("0x" + "44" * 32, 0, 5)
    now = Block(10, 1000)
    chain: Any = SimpleNamespace(
        should_enlist=lambda: False,
        credits=lambda: 0,
        latest_block=lambda: now,
        final_block=lambda: now,
        first_block_since=lambda *_: 0,
        seats=lambda *_: [seat],
        dispute=lambda *_: Dispute(DisputePhase.JUDGING, 2000, 1, convicted=False),
        revealed_trace=lambda _: None,
        terms=SimpleNamespace(verdict_period=100),
    )
    nothing: Any = None
    Referee(Verdicts(tmp_path), lambda: chain, nothing, nothing, nothing, Wallet(KEY)).watch()
    assert "trace_not_in_logs" in caplog.text


def test_full_disk_allows_later_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[None] = []

    def full(_: NodeLifecycle) -> None:
        tried.append(None)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(NodeLifecycle, "_pass_challenge", full)
    network = SimpleNamespace(tiers={"bronze": None}, name="devnet")
    market: Any = SimpleNamespace(network=lambda: network)
    config = config_of(tmp_path)
    with Executor(CPU, 1 << 30, tmp_path) as executor, caplog.at_level(logging.WARNING):
        standing = NodeLifecycle(config, market, Wallet(to_hex(bytes(Account.create().key))), executor)
        for _ in range(2):  # the second one comes too soon after it
            standing.advance("active", must_prove=True)
            standing.close()
    assert "benchmark_failed error=[Errno 28] No space left on device" in caplog.text
    assert len(tried) == 1


@pytest.mark.parametrize("answer", [{}, [], None, "fine", {"status": "active", "counted": True, "challenge": "x"}])
def test_malformed_answer_ends_no_node_thread(tmp_path: Path, answer: Any) -> None:
    nothing: Any = None
    connection: Any = SimpleNamespace(**dict.fromkeys(("get", "post", "call", "poll"), lambda *_, **__: answer))
    network: Any = SimpleNamespace(chain_id=1, tiers={"bronze": None}, contracts={"JobEscrow": OMISSIONS})
    config = NodeConfig("http://127.0.0.1:1", "provider", tmp_path, "node")
    market = Market(connection)
    payouts = Payouts(config, connection, network, Wallet(KEY))
    attesting = AttestationRenewal(market, "0x", nothing, nothing)
    calls: list[Callable[[], Any]] = [
        market.network,
        lambda: market.poll(lambda _: "0x"),
        lambda: market.upload(b""),
        lambda: market.dispute("0x"),
        payouts.collect,
    ]
    if answer:  # the other answer is valid: no asks
        calls.append(market.open_asks)
    for call in calls:
        with raises_code(Unreachable, "answer-unknown"):
            call()
    attesting.keep()


def test_directory_serves_one_node_and_explains_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOO_PRIVATE_KEY", KEY)
    config = config_of(tmp_path)
    at_hand = tmp_path / "files" / "at-hand"
    at_hand.parent.mkdir()
    at_hand.touch()
    with lock_state_directory(tmp_path), raises_code(ConfigError, "state-dir-in-use"):
        run_node(config)
    assert at_hand.exists(), "the first one works with it"
    (tmp_path / "store" / "blocks").mkdir(parents=True)
    with raises_code(ConfigError, "state-dir-unusable") as error:
        run_node(config)
    assert "earlier version" in error.value.detail


def test_repeated_obstacle_does_not_fill_log(caplog: pytest.LogCaptureFixture) -> None:
    throttle = ErrorThrottle()
    for what in ("no ZEN", "no ZEN", "no ZEN", "no coin", "no ZEN", "no ZEN"):
        throttle.warn(what)
    assert [record.message for record in caplog.records] == ["no ZEN", "no coin", "no ZEN"]
    throttle._again_at = 0.0  # some minutes later
    throttle.warn("no ZEN")
    assert len(caplog.records) == 4
