"""A node's work with real training and store; its fake market fails at chosen moments."""

import hashlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from kit.engines.ipfs_processes import StoreProcess
from kit.nodes.node_work_fixtures import DOMAIN, JOB, WALLET, Killed, Market, OneNode, lease
from kit.waiting import delay

from zoo_compute.base.errors import ApiError, Unreachable
from zoo_compute.content.blockstore import BlockNotFound
from zoo_compute.content.gateway import GatewayClient, GatewayUnavailable
from zoo_compute.node.disk.traces import TraceLost, Traces
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.execution.executor import Executor, ExecutorError
from zoo_compute.node.work import worker as node_work
from zoo_compute.node.work.acknowledgements import Journal, NotAcknowledged
from zoo_compute.node.work.held_lease import LeaseLost
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.hashing import from_hex, to_hex
from zoo_protocol.messages import ReplayCommitment, UnitCommitment, recover, recover_strictly, typed_data
from zoo_protocol.payments.job_record import result_hash
from zoo_protocol.verification import trace


def test_unit_is_committed_before_upload(node: OneNode) -> None:
    market = Market(node.store)
    node.train(market)
    assert market.order() == ["commit", "upload", "complete"]
    commitment, result = market.body("commit"), market.body("complete")
    signed = UnitCommitment(JOB, 0, 2, WALLET.address, commitment["trace_root"], commitment["payload_hash"])
    assert recover(typed_data(DOMAIN, signed), commitment["commitment_signature"]) == WALLET.address
    assert to_hex(trace.trace_root([from_hex(leaf) for leaf in result["leaves"]])) == commitment["trace_root"]
    bound = trace.payload_hash(from_hex(result["payload_sha256"]), WALLET.address, from_hex(result["salt"]))
    assert to_hex(bound) == commitment["payload_hash"]
    with GatewayClient([node.store.gateway_url]) as gateway:
        payload = gateway.fetch(result["payload_cid"], max_bytes=1 << 20)
    assert to_hex(hashlib.sha256(payload).digest()) == result["payload_sha256"]


def test_upload_waits_for_commitment_acknowledgement(
    node: OneNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(node_work, "_ACKNOWLEDGEMENT_RETRIES", (0.0, 0.0))
    mute = Market(node.store, silent=99)
    with pytest.raises(NotAcknowledged):
        node.train(mute)
    assert mute.order() == ["commit"] * 3
    assert "no acknowledgement" in caplog.text
    assert Journal(node.workspace.acknowledgements).all() == []
    slow = Market(node.store, silent=1)
    node.train(slow)
    assert slow.order() == ["commit", "commit", "upload", "complete"]
    [kept] = Journal(node.workspace.acknowledgements).all()
    assert kept.unit.traceRoot == slow.body("commit")["trace_root"]


@pytest.mark.parametrize("moment", ["commit", "upload", "complete"])
def test_killed_node_resumes_lease_without_retraining(
    node: OneNode, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    first = Market(node.store, at=moment, fault=Killed())
    with pytest.raises(Killed):
        node.train(first)
    monkeypatch.setattr(node.executor, "run", lambda *_: pytest.fail("trained a second time"))
    second = Market(node.store)
    node.train(second)
    assert second.order() == ["commit", "upload", "complete"]
    if moment != "commit":
        assert second.body("commit") == first.body("commit"), "another commitment would be refused"


def test_work_waits_limited_time_for_unreachable_gateways(
    own_store: StoreProcess, executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Waiting(Market):
        def wait_or_stop(self, seconds: float) -> bool:
            self.store.start()
            return False

    node, market = OneNode(own_store, executor, tmp_path), Waiting(own_store)
    own_store.stop()
    with monkeypatch.context() as patch:
        patch.setattr(node_work, "GATEWAY_OUTAGE_SECONDS", -1.0)
        with pytest.raises(GatewayUnavailable):
            node.train(market)
    assert market.order() == []
    node.train(market)
    assert market.order() == ["commit", "upload", "complete"]

    place = {key: node.task[key] for key in ("job_id", "round", "slot")}
    node.work(market, lease("reveal", place | {"segment": 1, "slot_state_cid": None}))
    shown, leaves = market.calls[-1][1]["state_cid"], market.body("complete")["leaves"]
    replay = {**node.task, "segment": 1, "start_leaf": leaves[1], "state_cid": shown}
    for known in ([], [shown]):  # away for the state, and for what any unit starts from
        verifier, directory = Waiting(own_store), f"verifier-{len(known)}"
        with GatewayClient([own_store.gateway_url]) as gateway:
            for cid in known:
                Workspace(tmp_path / directory).fetch(gateway, cid)
        own_store.stop()
        node.work(verifier, lease("replay", replay), at=directory)
        assert verifier.order() == ["commit", "complete"]


def test_data_missing_at_gateways_is_not_awaited(node: OneNode) -> None:
    class Waiting(Market):
        def wait_or_stop(self, seconds: float) -> bool:
            pytest.fail("it waits")

    market = Waiting(node.store)
    absent = node.task | {"checkpoint_cid": cid_of_file(b"nobody has this")}
    with pytest.raises(BlockNotFound):
        node.work(market, lease("train", absent), at="node")


def test_trace_is_saved_before_its_signature_leaves(node: OneNode) -> None:
    market = Market(node.store, at="commit", fault=Killed())
    with pytest.raises(Killed):
        node.train(market)
    traces = node.workspace.traces
    [file] = traces.glob("*.json")
    kept = Traces(traces).find(file.stem)
    assert len(kept.states) == 3
    assert (kept.unit.provider, kept.environment) == (WALLET.address, node.executor.environment_class)
    assert kept.root == kept.unit.traceRoot
    long_ago = time.time() - 3_600
    os.utime(file, (long_ago, long_ago))
    Traces(traces).tidy(3_700, time.time())
    assert Traces(traces).find(file.stem) == kept
    Traces(traces).tidy(3_500, time.time())
    with pytest.raises(TraceLost):
        Traces(traces).find(file.stem)


def test_work_stops_when_lease_is_lost(node: OneNode) -> None:
    market = Market(node.store, at="keep", fault=ApiError(409, "lease-lost", "The lease's time has passed."))
    with pytest.raises(LeaseLost):
        node.train(market)
    assert market.order() == []


def test_missed_heartbeat_does_not_stop_work(node: OneNode) -> None:
    market = Market(node.store, at="keep", fault=Unreachable("market-unreachable", "restarting"))
    node.train(market)
    assert market.order()[-1] == "complete"


def test_second_verifier_commits_same_leaf_before_reveal(node: OneNode) -> None:
    provider = Market(node.store)
    node.train(provider, at="provider")
    leaves = provider.body("complete")["leaves"]
    place = {key: node.task[key] for key in ("job_id", "round", "slot")}
    node.work(provider, lease("reveal", place | {"segment": 1, "slot_state_cid": None}), at="provider")
    state_cid = provider.calls[-1][1]["state_cid"]

    verifier = Market(node.store)
    task = {**node.task, "segment": 1, "start_leaf": leaves[1], "state_cid": state_cid}
    node.work(verifier, lease("replay", task), at="verifier")
    assert verifier.order() == ["commit", "complete"]
    revealed = verifier.body("complete")
    assert revealed["end_leaf"] == leaves[2]
    hashed, signature = verifier.body("commit").values()
    assert hashed == result_hash(revealed["end_leaf"], None, WALLET.address, revealed["salt"])
    signed = ReplayCommitment(*place.values(), 1, leaves[1], node.executor.environment_class, hashed)
    assert recover_strictly(typed_data(DOMAIN, signed), signature) == WALLET.address

    with pytest.raises(ExecutorError) as error:
        node.work(verifier, lease("replay", {**task, "start_leaf": leaves[0]}), at="verifier")
    assert error.value.code == "start_state_mismatch"


def test_pin_proof_covers_every_byte_and_survives_restart(node: OneNode) -> None:
    files = [b"manifest", b"model" * 100_000]
    cids = [node.store.add(content) for content in files]
    market = Market(node.store)
    task = {"nonce": "0x" + "09" * 32, "cids": cids, "round": 1, "checkpoint_cid": cids[0], "release": []}
    worker = node.work(market, lease("pin", task))
    assert market.body("complete")["proof"] == to_hex(hashlib.sha256(b"\x09" * 32 + b"".join(files)).digest())
    worker.workspace.store.collect()
    kept = {str(cid) for cid in node.workspace.store.pins()}
    assert kept == set(cids)


def test_released_checkpoint_is_unpinned_except_shared_files(node: OneNode) -> None:
    first, second, shared = (node.store.add(content) for content in (b"first", b"second", b"model" * 100_000))
    market = Market(node.store)
    for cids, released in (([first, shared], []), ([second, shared], [first])):
        task = {"nonce": "0x" + "09" * 32, "cids": cids, "round": 1, "checkpoint_cid": cids[0], "release": released}
        node.work(market, lease("pin", task))
    workspace = node.workspace
    assert {str(cid) for cid in workspace.store.pins()} == {second, shared}
    workspace.release([first, node.store.add(b"never kept")])  # again, and unknown: nothing happens
    assert workspace.store.collect() == 1
    workspace.release([second])
    assert not list(workspace.store.pins())


def test_interrupted_release_is_finished_by_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = Workspace(tmp_path)
    cids = [str(workspace.store.add(content)) for content in (b"manifest of a cut one", b"its model")]
    workspace.keep(cids[0], cids, "0x" + "01" * 32)
    with monkeypatch.context() as patched:
        patched.setattr(workspace.store, "unpin", mock.Mock(side_effect=[True, KeyboardInterrupt]))
        with pytest.raises(KeyboardInterrupt):
            workspace.release([cids[0]])
    again = Workspace(tmp_path)
    again.release([cids[0]])
    assert not again.store.pins()
    assert not list((tmp_path / "checkpoints").iterdir())


def test_release_follows_proof_of_newer_checkpoint(node: OneNode) -> None:
    kept, newer = node.store.add(b"kept"), node.store.add(b"newer")
    task = {"nonce": "0x" + "09" * 32, "cids": [kept], "round": 1, "checkpoint_cid": kept, "release": []}
    node.work(Market(node.store), lease("pin", task))
    silent = Market(node.store, at="complete", fault=Unreachable("market-unreachable", "the market does not answer"))
    with pytest.raises(Unreachable):
        node.work(silent, lease("pin", task | {"cids": [newer], "release": [kept]}))
    assert kept in {str(cid) for cid in node.workspace.store.pins()}


def test_leases_are_remembered_until_they_end(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    held = lease("train", {"round": 1})
    workspace.store_lease(held)
    assert Workspace(tmp_path).stored_leases() == [held]
    workspace.forget(held)
    assert Workspace(tmp_path).stored_leases() == []


def test_old_states_are_removed_and_young_ones_kept(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    old, young = workspace.unit(JOB, 0, 0), workspace.unit(JOB, 1, 0)
    long_ago = time.time() - 49 * 3600
    os.utime(old, (long_ago, long_ago))
    workspace.tidy(keep_hours=48)
    assert not old.exists()
    assert young.exists()


def test_pins_of_unobtainable_checkpoint_are_released(node: OneNode) -> None:
    manifest, newer = node.store.add(b"of a lost one"), node.store.add(b"the newer")
    gone = cid_of_file(b"nobody has this")
    task = {"nonce": "0x" + "09" * 32, "cids": [manifest, gone], "round": 1, "checkpoint_cid": manifest, "release": []}
    with pytest.raises(BlockNotFound):
        node.work(Market(node.store), lease("pin", task))
    assert {str(cid) for cid in node.workspace.store.pins()} == {manifest}
    again = task | {"cids": [newer], "checkpoint_cid": newer, "release": [manifest]}  # others keep it
    node.work(Market(node.store), lease("pin", again))
    assert {str(cid) for cid in node.workspace.store.pins()} == {newer}


def test_silent_child_is_abandoned_with_its_lease(node: OneNode) -> None:
    refusal = ApiError(409, "lease-lost", "The lease is expired (round_closed).")
    market = Market(node.store, at="keep", fault=None)
    node.executor.run({"kind": "probe"}, 60)
    with stopped_child(node.executor):
        working = threading.Thread(target=lambda: outcome.append(_failure(node, market)))
        outcome: list[type[BaseException] | None] = []
        working.start()
        delay(1.0)
        market.fault = refusal
        working.join(60)
        assert not working.is_alive(), "it waits for its child"
    assert outcome == [LeaseLost]


def _failure(node: OneNode, market: Market) -> type[BaseException] | None:
    try:
        node.train(market)
    except Exception as error:
        return type(error)
    return None


@contextmanager
def stopped_child(executor: Executor) -> Iterator[None]:
    assert executor._child is not None
    process = executor._child._process
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.kill()
