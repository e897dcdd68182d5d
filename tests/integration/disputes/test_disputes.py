"""A node answers disputes of its units: live training and chain, wrong challengers."""

import time
from dataclasses import replace

import httpx
import pytest
from kit.api.clients import Cli
from kit.chain.deployed_chain import OPERATOR, OTHER, wallet
from kit.disputes.dispute_fixtures import (  # noqa: F401  (fixtures)
    TERMS,
    ZEN,
    Delivered,
    DisputeWorld,
    honest_node,
    unit_of_the_node,
    world_of_disputes,
)
from kit.errors import raising
from kit.verification.live_fixtures import Node

from market.training.units.models import Unit
from zoo_compute.base.amounts import format_zen
from zoo_compute.base.errors import ExitCode, Unreachable
from zoo_compute.chain import transactions
from zoo_compute.chain import wallet as chain_wallet
from zoo_compute.chain.disputes import DisputePhase
from zoo_compute.chain.wallet import Block
from zoo_compute.node.disk.traces import Inclusion, Traces
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.disputes.defence import Disputes
from zoo_protocol import merkle
from zoo_protocol.hashing import from_hex, to_hex
from zoo_protocol.messages import MAX_PROMISE_SECONDS

FIRST, SECOND = wallet(8), wallet(9)


def test_false_challenger_loses_its_bond(
    live: DisputeWorld, node: Node, unit: Delivered, caplog: pytest.LogCaptureFixture
) -> None:
    opened, watch = live.dispute(FIRST, unit), live.watch_of(node)
    assert live.state(opened).phase is DisputePhase.TRACE
    watch.watch()
    assert live.state(opened).phase is DisputePhase.STEP
    assert f"trace_revealed dispute={opened.dispute_id} job={unit.unit.jobId} round=0 replica=0" in caplog.text

    sent = live.sent_by(node)
    live.deployed.anvil.mine()
    watch.watch()
    live.watch_of(node).watch()
    assert live.sent_by(node) == sent  # it is the challenger's turn

    live.pass_turn()
    views, before = live.deployed.views, live.deployed.views.balance_of(node.address)
    watch.watch()
    assert live.state(opened).phase is DisputePhase.CHALLENGER_LOST
    watch.watch()
    assert views.balance_of(node.address) == before + TERMS.cost_wei
    assert views.stake_of(node.address) == 1_000 * ZEN
    assert views.balance_of(FIRST.address) == 0
    assert live.chain_of(FIRST).credits() == 0
    assert "rejected: the challenger forfeits its bond" in caplog.text
    live.deployed.anvil.mine(3)
    watch.watch()
    assert watch.look() == []  # it is final, and forgotten


def test_restarted_node_answers_open_dispute(live: DisputeWorld, node: Node, unit: Delivered) -> None:
    opened = live.dispute(FIRST, unit)
    live.deployed.anvil.mine(5)
    with pytest.raises(Unreachable):
        live.watch_of(node, "http://127.0.0.1:1").watch()
    live.deployed.anvil.rpc("evm_increaseTime", TERMS.turn_seconds - 3_600)
    live.deployed.anvil.mine(5)
    live.watch_of(node).watch()
    assert live.state(opened).phase is DisputePhase.STEP


@pytest.mark.long
def test_concurrent_disputes_are_all_answered(live: DisputeWorld, node: Node, unit: Delivered) -> None:
    opened = [live.dispute(FIRST, unit), live.dispute(SECOND, live.delivered(node))]
    opened.append(live.dispute(SECOND, unit))
    live.watch_of(node).watch()
    assert [live.state(dispute).phase for dispute in opened] == [DisputePhase.STEP] * 3


@pytest.mark.long
def test_dispute_opened_during_another_answer_is_found(
    live: DisputeWorld, node: Node, unit: Delivered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dispute is final before the next look, although no look has come to its block."""
    live.dispute(FIRST, unit)
    live.fund(SECOND)
    attend, opened = Disputes._respond_to_all, []

    def slowly(watch: Disputes, latest: Block) -> bool:
        done = attend(watch, latest)
        if not opened:
            opened.append(live.open(SECOND, unit))
            live.deployed.anvil.mine(5)
        return done

    monkeypatch.setattr(Disputes, "_respond_to_all", slowly)
    watch = live.watch_of(node)
    for _ in range(2):
        watch.watch()
    assert live.state(opened[0]).phase is DisputePhase.STEP


def test_trace_revealed_by_other_account_is_not_repeated(live: DisputeWorld, node: Node, unit: Delivered) -> None:
    opened, sent = live.dispute(FIRST, unit), live.sent_by(node)
    trace = Traces(Workspace(live.directory / node.address).traces).find(unit.unit_id)
    live.chain_of(SECOND).reveal_trace(opened.dispute_id, trace.unit, trace.environment, trace.states, 100)
    live.watch_of(node).watch()
    assert (live.state(opened).phase, live.sent_by(node)) == (DisputePhase.STEP, sent)


def test_node_without_native_token_warns_and_answers_later(
    live: DisputeWorld, node: Node, unit: Delivered, caplog: pytest.LogCaptureFixture
) -> None:
    opened, watch = live.dispute(FIRST, unit), live.watch_of(node)
    live.deployed.anvil.rpc("anvil_setBalance", node.address, "0x1")
    watch.watch()
    assert live.state(opened).phase is DisputePhase.TRACE
    assert "coin-too-low" in caplog.text
    assert "balance_low" in caplog.text
    live.deployed.anvil.rpc("anvil_setBalance", node.address, hex(ZEN))
    watch.watch()  # without a new block
    assert live.state(opened).phase is DisputePhase.STEP


def test_unmined_answer_is_replaced_at_higher_fee(
    live: DisputeWorld, node: Node, unit: Delivered, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened, watch, sent = live.dispute(FIRST, unit), live.watch_of(node), live.sent_by(node)
    monkeypatch.setattr(transactions, "_MINING_SECONDS", 0.3)
    live.deployed.anvil.automine(False)
    try:
        watch.watch()
        assert chain_wallet.NOT_MINED in caplog.text
        [first] = live.waiting(node)
        watch.watch()
        [second] = live.waiting(node)
        live.deployed.anvil.mine()
    finally:
        live.deployed.anvil.automine(True)
    assert int(second["maxFeePerGas"], 16) >= int(first["maxFeePerGas"], 16) * 5 // 4
    assert live.sent_by(node) == sent + 1
    assert live.state(opened).phase is DisputePhase.STEP


@pytest.mark.long
def test_reorganised_answer_is_sent_again(live: DisputeWorld, node: Node, unit: Delivered) -> None:
    live.fund(FIRST)
    live.deployed.anvil.mine(3)
    opened, watch = live.open(FIRST, unit), live.watch_of(node)
    watch.watch()
    assert live.state(opened).phase is DisputePhase.STEP
    live.deployed.anvil.reorg(2)  # dispute and answer are gone
    assert live.state(opened).phase is DisputePhase.NONE
    live.deployed.anvil.mine()
    watch.watch()
    again = live.open(FIRST, unit)
    watch.watch()
    assert live.state(again).phase is DisputePhase.STEP
    live.deployed.anvil.reorg(1)  # the answer is gone
    assert live.state(again).phase is DisputePhase.TRACE
    live.deployed.anvil.mine()
    watch.watch()
    assert live.state(again).phase is DisputePhase.STEP


@pytest.mark.long
def test_dispute_reorganised_into_searched_blocks_is_found(live: DisputeWorld, node: Node, unit: Delivered) -> None:
    live.fund(FIRST)
    live.deployed.anvil.mine(3)
    watch, mark = live.watch_of(node), live.deployed.anvil.snapshot()
    live.deployed.anvil.mine(2)
    watch.watch()
    live.deployed.anvil.revert(mark)  # neither block was final
    opened = live.open(FIRST, unit)
    live.deployed.anvil.mine(2)
    watch.watch()
    assert live.state(opened).phase is DisputePhase.STEP


def test_lost_or_damaged_trace_is_named(
    live: DisputeWorld, node: Node, unit: Delivered, caplog: pytest.LogCaptureFixture
) -> None:
    live.dispute(FIRST, unit)
    file = Workspace(live.directory / node.address).traces / f"{unit.unit_id}.json"
    written = file.read_text()
    watch = live.watch_of(node)
    for content, code in (
        (written.replace('"states": ["0x', '"states": ["0y'), "trace_damaged"),
        (None, "trace_unknown"),
    ):
        file.unlink() if content is None else file.write_text(content)
        live.deployed.anvil.mine()
        watch.watch()
        assert [found.problem for found in watch.look()] == [code]
        assert f"[{code}]" in caplog.text
    file.write_text(written)
    live.pass_turn()
    watch.watch()
    assert [found.problem for found in watch.look()] == ["turn_over"]


def test_old_unit_in_new_window_costs_nothing(live: DisputeWorld, node: Node, unit: Delivered) -> None:
    """The operator commits an old leaf again, after the node deleted the trace."""
    watch, traces = live.watch_of(node), Traces(Workspace(live.directory / node.address).traces)
    traces.keep_inclusion(unit.unit_id, Inclusion(unit.window, unit.proof))
    live.deployed.anvil.rpc("evm_increaseTime", watch.chain.trace_retention_seconds)
    live.deployed.anvil.mine()
    traces.tidy(0, time.time() + 1)
    stranger = "0x" + "77" * 32
    again = to_hex(merkle.root([from_hex(unit.unit_id), from_hex(stranger)]))
    live.transact(OPERATOR, "WorkWindows", "commitWindow", again, 2)
    opened = live.dispute(FIRST, replace(unit, window=again, proof=[stranger]))
    watch.watch()
    assert live.state(opened).phase is DisputePhase.CHALLENGER_LOST
    assert live.deployed.views.stake_of(node.address) == 1_000 * ZEN


def test_disputes_are_answered_on_full_disk(
    live: DisputeWorld, node: Node, unit: Delivered, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = live.watch_of(node)
    with monkeypatch.context() as disk:
        disk.setattr("zoo_compute.node.disputes.defence.write_json", raising(OSError(28, "No space left on device")))
        opened = live.dispute(FIRST, unit)
        watch.watch()
    assert live.state(opened).phase is DisputePhase.STEP
    live.deployed.anvil.mine()
    watch.watch()  # there is room again: the other thread, which gives the state, reads it there
    assert [found for found, _ in live.watch_of(node).open_disputes()] == [opened.dispute_id]


def test_known_dispute_is_answered_despite_failures(
    live: DisputeWorld, node: Node, unit: Delivered, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = live.dispute(FIRST, unit)
    watch = live.watch_of(node)
    monkeypatch.setattr(watch, "_respond_to_all", lambda _: False)
    watch.watch()
    monkeypatch.undo()
    (Workspace(live.directory / node.address).disputes / "torn.json").write_text('{"dispute')
    monkeypatch.setattr(watch.chain, "opened", raising(Unreachable("chain-unreachable", "no logs today")))
    with pytest.raises(Unreachable):
        watch.watch()
    assert live.state(opened).phase is DisputePhase.STEP


def test_clock_jump_deletes_no_evidence(
    live: DisputeWorld, node: Node, unit: Delivered, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, watch = Workspace(live.directory / node.address), live.watch_of(node)
    states = workspace.unit(unit.unit.jobId, unit.unit.round, unit.unit.slot)
    a_year_later = time.time() + 365 * 86_400
    monkeypatch.setattr(time, "time", lambda: a_year_later)
    watch.watch()
    assert Traces(workspace.traces).find(unit.unit_id).unit == unit.unit
    assert watch.trace_retention_seconds is not None
    workspace.tidy(48, watch.trace_retention_seconds, watch.now)
    assert (states / "result.json").exists()


def test_trace_is_kept_while_unit_is_disputable(live: DisputeWorld, node: Node, unit: Delivered) -> None:
    traces, seconds = (
        Traces(Workspace(live.directory / node.address).traces),
        live.chain_of(node).trace_retention_seconds,
    )
    days = 7 + 1 + 5  # for a claim of its omission, for the answer, for a dispute
    assert seconds == MAX_PROMISE_SECONDS + days * 86_400 + TERMS.turn_seconds
    traces.tidy(seconds, time.time())
    assert traces.find(unit.unit_id).unit == unit.unit
    file = Workspace(live.directory / node.address).traces / f"{unit.unit_id}.json"
    assert file.stat().st_size < 3_000


def test_disputes_are_listed_and_answered_by_cli(live: DisputeWorld, node: Node, unit: Delivered, cli: Cli) -> None:
    opened, directory = live.dispute(FIRST, unit), live.directory / node.address
    cli.be(node.key)
    shown = cli.json("node", "disputes", "--state-dir", directory)
    deadline = live.state(opened).deadline
    assert shown["disputes"] == [
        {
            "dispute_id": opened.dispute_id,
            "unit_id": unit.unit_id,
            "challenger": FIRST.address,
            "turn": "trace",
            "until": deadline,
            "step": None,
            "problem": None,
        }
    ]
    assert int(shown["coin_wei"]) > int(shown["answer_costs_wei"]) > 0
    assert "the trace is due by" in cli("node", "disputes", "--state-dir", directory)
    assert "revealed; the challenger selects a segment" in cli("node", "disputes", "--state-dir", directory, "--answer")
    assert live.state(opened).phase is DisputePhase.STEP
    assert "state-dir-missing" in cli("node", "disputes", "--state-dir", directory / "none", code=ExitCode.USAGE)


def test_challenger_needs_only_settled_record_and_bond(
    live: DisputeWorld, node: Node, unit: Delivered, cli: Cli
) -> None:
    place = f"{unit.unit.jobId}:{unit.unit.round}:{unit.unit.slot}"
    cli.be(FIRST.key)
    assert "unit-unsettled" in cli("dispute", "open", place, code=ExitCode.FAILED)  # the unit is not decided either
    live.settle(unit)
    assert "balance-too-low" in cli("dispute", "open", place, code=ExitCode.FAILED)
    assert "unit-unknown" in cli("dispute", "open", place, "--provider", SECOND.address, code=ExitCode.FAILED)
    live.transact(OTHER, "ZenToken", "transfer", FIRST.address, TERMS.bond_wei)
    opened = cli.json("dispute", "open", place, "--no-replay")
    assert (opened["unit_id"], opened["provider"]) == (unit.unit_id, node.address)
    dispute_id = opened["dispute_id"]
    assert live.chain_of(FIRST).dispute(dispute_id).phase is DisputePhase.TRACE
    waiting = cli.json("dispute", "status", dispute_id)
    assert (waiting["turn"], waiting["states"]) == ("trace", [])
    assert "must reveal its trace" in cli("dispute", "status", dispute_id)
    assert f"refuses: WrongStatus(disputeId={dispute_id}" in cli("dispute", "name", dispute_id, 1, code=ExitCode.FAILED)
    for command in (("status",), ("name", 1), ("end",), ("draw",)):
        refused = cli("dispute", command[0], "0x" + "00" * 32, *command[1:], code=ExitCode.FAILED)
        assert "dispute-unknown" in refused

    live.watch_of(node).watch()
    shown = cli.json("dispute", "status", dispute_id)
    trace = Traces(Workspace(live.directory / node.address).traces).find(unit.unit_id)
    assert (shown["turn"], shown["states"]) == ("step", trace.states)
    assert "state 4" in cli("dispute", "status", dispute_id)
    cli.json("dispute", "name", dispute_id, 2)
    named = cli.json("dispute", "status", dispute_id)
    assert (named["turn"], named["step"], named["until"]) == ("drawing", 2, None)
    assert "dispute-malformed" in cli("dispute", "status", "0x12", code=ExitCode.USAGE)
    assert "dispute-exists" in cli("dispute", "open", place, code=ExitCode.FAILED)


def test_dispute_of_correct_unit_keeps_bond(
    live: DisputeWorld, node: Node, unit: Delivered, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"{unit.unit.jobId}:{unit.unit.round}:{unit.unit.slot}"
    cli.be(FIRST.key)
    live.settle(unit)
    live.transact(OTHER, "ZenToken", "transfer", FIRST.address, TERMS.bond_wei)
    refused = cli("dispute", "open", place, "--yes", code=ExitCode.FAILED)
    assert "unit-correct" in refused
    assert "every step is as committed" in refused
    unanswered = cli("dispute", "open", place, "--no-replay", code=ExitCode.USAGE)
    assert "confirmation-missing" in unanswered
    assert f"{format_zen(TERMS.bond_wei)} ZEN, lost if the provider is right" in unanswered
    assert live.deployed.views.balance_of(FIRST.address) == TERMS.bond_wei


def test_decided_unit_is_disputable_only_within_its_period(
    live: DisputeWorld, node: Node, unit: Delivered, cli: Cli
) -> None:
    """An operator may settle late, or wait until the dispute period is over."""
    place = f"{unit.unit.jobId}:{unit.unit.round}:{unit.unit.slot}"
    cli.be(FIRST.key)
    live.call(lambda session: session.query(Unit).filter(Unit.job_id == unit.unit.jobId).update({"status": "verified"}))
    live.transact(OTHER, "ZenToken", "transfer", FIRST.address, TERMS.bond_wei)
    opened = cli.json("dispute", "open", place, "--no-replay")
    assert (opened["unit_id"], opened["provider"]) == (unit.unit_id, node.address)
    assert live.chain_of(FIRST).dispute(opened["dispute_id"]).phase is DisputePhase.TRACE
    live.deployed.anvil.rpc("evm_increaseTime", TERMS.period_seconds + 60)
    live.deployed.anvil.mine()
    assert "dispute-period-over" in cli("dispute", "open", place, code=ExitCode.FAILED)


def test_public_unit_data_needs_no_account(live: DisputeWorld, unit: Delivered, api: httpx.Client) -> None:
    record = f"/v1/jobs/{unit.unit.jobId}/units/{unit.unit.round}/{unit.unit.slot}"
    assert api.get(record).status_code == 404  # not public before the unit is decided
    assert api.get(f"/v1/commitments/{unit.unit_id}").json()["trace"] is None
    live.call(lambda session: session.query(Unit).filter(Unit.job_id == unit.unit.jobId).update({"status": "verified"}))
    assert len(api.get(f"/v1/commitments/{unit.unit_id}").json()["trace"]) == 5
    (record_unit,) = api.get(record).json()["record"]["units"]
    assert record_unit["commitment_signature"] == unit.signature


def test_unresponsive_provider_loses_to_cli_challenger(
    live: DisputeWorld, node: Node, unit: Delivered, cli: Cli
) -> None:
    opened = live.dispute(FIRST, unit)
    cli.be(FIRST.key)
    assert "transaction-refused" in cli("dispute", "end", opened.dispute_id, code=ExitCode.FAILED)
    live.pass_turn()
    ended = cli.json("dispute", "end", opened.dispute_id)
    assert (ended["turn"], ended["withdrawn_wei"]) == ("provider_lost", str(TERMS.bond_wei + TERMS.cost_wei))
    assert live.deployed.views.balance_of(FIRST.address) == TERMS.bond_wei + TERMS.cost_wei
    assert live.deployed.views.stake_of(node.address) == 500 * ZEN
    again = cli.json("dispute", "end", opened.dispute_id)
    assert (again["tx"], again["withdrawn_wei"]) == (None, "0")
