"""A node's replica states, with real training and a real store: location, use and deletion."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from kit.engines.ipfs_processes import StoreProcess
from kit.errors import raises_code
from kit.nodes.node_work_fixtures import JOB, Killed, Market, OneNode, lease

from training_gym.spec.config import TrainingSpec
from training_gym.units.replica_state import load_slot_state
from zoo_compute.content.blockstore import BlockNotFound
from zoo_compute.content.gateway import GatewayClient
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.execution.executor import ExecutorError
from zoo_compute.node.work.inputs import SlotStateMissing
from zoo_protocol.hashing import to_hex


def next_task(task: dict[str, Any], done: dict[str, Any]) -> dict[str, Any]:
    return task | {"round": 1, "slot_state_cid": done["slot_state_cid"]}


def two_rounds(node: OneNode) -> dict[str, Any]:
    spec = node.task["spec"] | {"training_config": node.task["spec"]["training_config"] | {"rounds": 2}}
    return node.task | {"spec": TrainingSpec.from_dict(spec).to_dict()}


def is_stored(store: StoreProcess, cid: str) -> bool:
    try:
        with GatewayClient([store.gateway_url], attempts=1) as gateway:
            gateway.fetch(cid, max_bytes=1 << 30)
    except BlockNotFound:
        return False
    return True


def test_completion_uploads_payload_only_and_keeps_local_state(node: OneNode) -> None:
    market, task = Market(node.store), two_rounds(node)
    node.work(market, lease("train", task))
    done = market.body("complete")
    with GatewayClient([node.store.gateway_url]) as gateway:
        payload = gateway.fetch(done["payload_cid"], max_bytes=1 << 20)
    assert [body["size"] for name, body in market.calls if name == "upload"] == [len(payload)]
    assert done["report"]["bytes_up"] == 0  # this test's market is not over the link; nothing else went over it
    assert not is_stored(node.store, done["slot_state_cid"])
    state = node.workspace.slot_state(JOB, 2, done["slot_state_cid"]).read_bytes()
    loaded = load_slot_state(TrainingSpec.from_dict(task["spec"]), state)
    assert (to_hex(loaded.digest()), loaded.steps) == (done["slot_state_digest"], 4)

    following = Market(node.store)
    node.work(following, lease("train", next_task(task, done)))
    second = following.body("complete")
    own = node.workspace.slot_state(JOB, 2, second["slot_state_cid"]).read_bytes()
    assert load_slot_state(TrainingSpec.from_dict(task["spec"]), own).steps == 8

    elsewhere = Market(node.store)  # another node has nothing to start from
    with raises_code(SlotStateMissing, "slot_state_missing"):
        node.work(elsewhere, lease("train", next_task(task, done)), at="other")
    node.store.add(state)  # unless it was made public
    node.work(elsewhere, lease("train", next_task(task, done)), at="other")
    assert elsewhere.body("complete")["leaves"] == second["leaves"]


def test_sampled_replica_state_is_revealed_and_replay_matches(node: OneNode) -> None:
    first, second = Market(node.store), Market(node.store)
    task = two_rounds(node) | {"slot": 3}  # another state than that of the test above, which made its own public
    node.work(first, lease("train", task))
    following = next_task(task, first.body("complete"))
    node.work(second, lease("train", following))
    leaves = second.body("complete")["leaves"]
    for segment in (0, 1):
        asked = {key: following[key] for key in ("job_id", "round", "slot", "slot_state_cid")} | {"segment": segment}
        node.work(second, lease("reveal", asked))
        shown = second.calls[-1][1]
        assert shown["slot_state_cid"] == following["slot_state_cid"]
        verifier = Market(node.store)
        replay = following | {"segment": segment, "start_leaf": leaves[segment], "state_cid": shown["state_cid"]}
        node.work(verifier, lease("replay", replay), at="verifier")
        assert verifier.body("complete")["end_leaf"] == leaves[segment + 1]
    node.workspace.slot_state(JOB, 3, following["slot_state_cid"]).unlink()
    with pytest.raises(SlotStateMissing):
        node.work(second, lease("reveal", asked))


def test_restored_start_is_equal_on_every_machine(node: OneNode) -> None:
    first, second = Market(node.store), Market(node.store)
    task = two_rounds(node) | {"slot": 4}
    training = task["spec"]["training_config"]
    fewer = TrainingSpec.from_dict(task["spec"] | {"training_config": training | {"top_k": training["top_k"] // 2}})
    node.work(first, lease("train", task | {"spec": fewer.to_dict()}))  # the late unit sent half as much
    late = first.body("complete")
    following = next_task(task, late) | {"restored_payload_cid": late["payload_cid"]}
    node.work(second, lease("train", following))
    leaves = second.body("complete")["leaves"]
    node.store.add(node.workspace.slot_state(JOB, 4, late["slot_state_cid"]).read_bytes())
    replay = following | {"segment": 0, "start_leaf": leaves[0], "state_cid": None}
    verifier = Market(node.store)
    node.work(verifier, lease("replay", replay), at="verifier")
    assert verifier.body("complete")["end_leaf"] == leaves[1]
    with raises_code(ExecutorError, "start_state_mismatch"):  # not so without the payload
        node.work(verifier, lease("replay", replay | {"restored_payload_cid": None}), at="verifier")


def test_killed_node_resumes_background_upload(node: OneNode) -> None:
    content = b"a slot state" * 100_000
    (node.directory / "state").write_bytes(content)
    cid = node.workspace.keep_slot_state(JOB, 1, node.directory / "state")
    held = lease("publish", {"job_id": JOB, "round": 0, "slot": 1, "slot_state_cid": cid})
    node.workspace.store_lease(held)
    with pytest.raises(Killed):
        node.work(Market(node.store, at="upload", fault=Killed()), held)
    assert not is_stored(node.store, cid)
    [again] = node.workspace.stored_leases()
    market = Market(node.store)
    node.work(market, again)
    assert market.order() == ["upload", "complete"]
    assert market.body("complete") == {"published_cid": cid}
    assert is_stored(node.store, cid)


def test_replica_states_are_kept_for_challenge_period(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    cids = []
    for age in (50, 49, 1, 60):
        (tmp_path / "state").write_bytes(b"%d" % age)
        then = time.time() - age * 3600
        os.utime(tmp_path / "state", (then, then))
        cids.append(workspace.keep_slot_state(JOB, age, tmp_path / "state"))
    workspace.tidy(keep_hours=48)
    left = [workspace.slot_state(JOB, age, cid).exists() for age, cid in zip((50, 49, 1, 60), cids, strict=True)]
    assert left == [False, False, True, False]
    workspace.tidy(keep_hours=0.5)  # the newest stays, however long its slot waits
    assert workspace.slot_state(JOB, 1, cids[2]).exists()
