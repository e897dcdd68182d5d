"""A node's replica states, with real training and a real store: location, use and deletion."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from kit.engines.ipfs_processes import StoreProcess
from kit.errors import raises_code
from kit.nodes.node_work_fixtures import JOB, Killed, Market, lease, work

from training_gym.spec.config import TrainingSpec
from training_gym.units.replica_state import load_slot_state
from zoo_compute.content.blockstore import BlockNotFound
from zoo_compute.content.gateway import GatewayClient
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.execution.executor import Executor, ExecutorError
from zoo_compute.node.work.inputs import SlotStateMissing
from zoo_protocol.hashing import to_hex


def next_task(task: dict[str, Any], done: dict[str, Any]) -> dict[str, Any]:
    return task | {"round": 1, "slot_state_cid": done["slot_state_cid"]}


@pytest.fixture(scope="module")
def two_rounds(train_task: dict[str, Any]) -> dict[str, Any]:
    spec = train_task["spec"] | {"training_config": train_task["spec"]["training_config"] | {"rounds": 2}}
    return train_task | {"spec": TrainingSpec.from_dict(spec).to_dict()}


def is_stored(store: StoreProcess, cid: str) -> bool:
    try:
        with GatewayClient([store.gateway_url], attempts=1) as gateway:
            gateway.fetch(cid, max_bytes=1 << 30)
    except BlockNotFound:
        return False
    return True


def test_completion_uploads_payload_only_and_keeps_local_state(
    store: StoreProcess, executor: Executor, two_rounds: dict[str, Any], tmp_path: Path
) -> None:
    market = Market(store)
    work(market, tmp_path, executor, lease("train", two_rounds))
    done = market.body("complete")
    with GatewayClient([store.gateway_url]) as gateway:
        payload = gateway.fetch(done["payload_cid"], max_bytes=1 << 20)
    assert [body["size"] for name, body in market.calls if name == "upload"] == [len(payload)]
    assert done["report"]["bytes_up"] == 0  # this test's market is not over the link; nothing else went over it
    assert not is_stored(store, done["slot_state_cid"])
    state = Workspace(tmp_path).slot_state(JOB, 2, done["slot_state_cid"]).read_bytes()
    loaded = load_slot_state(TrainingSpec.from_dict(two_rounds["spec"]), state)
    assert (to_hex(loaded.digest()), loaded.steps) == (done["slot_state_digest"], 4)

    following = Market(store)
    work(following, tmp_path, executor, lease("train", next_task(two_rounds, done)))
    second = following.body("complete")
    own = Workspace(tmp_path).slot_state(JOB, 2, second["slot_state_cid"]).read_bytes()
    assert load_slot_state(TrainingSpec.from_dict(two_rounds["spec"]), own).steps == 8

    elsewhere = Market(store)  # another node has nothing to start from
    with raises_code(SlotStateMissing, "slot_state_missing"):
        work(elsewhere, tmp_path / "other", executor, lease("train", next_task(two_rounds, done)))
    store.add(state)  # unless it was made public
    work(elsewhere, tmp_path / "other", executor, lease("train", next_task(two_rounds, done)))
    assert elsewhere.body("complete")["leaves"] == second["leaves"]


def test_sampled_replica_state_is_revealed_and_replay_matches(
    store: StoreProcess, executor: Executor, two_rounds: dict[str, Any], tmp_path: Path
) -> None:
    first, second = Market(store), Market(store)
    task = two_rounds | {"slot": 3}  # another state than that of the test above, which made its own public
    work(first, tmp_path, executor, lease("train", task))
    following = next_task(task, first.body("complete"))
    work(second, tmp_path, executor, lease("train", following))
    leaves = second.body("complete")["leaves"]
    for segment in (0, 1):
        asked = {key: following[key] for key in ("job_id", "round", "slot", "slot_state_cid")} | {"segment": segment}
        work(second, tmp_path, executor, lease("reveal", asked))
        shown = second.calls[-1][1]
        assert shown["slot_state_cid"] == following["slot_state_cid"]
        verifier = Market(store)
        replay = following | {"segment": segment, "start_leaf": leaves[segment], "state_cid": shown["state_cid"]}
        work(verifier, tmp_path / "verifier", executor, lease("replay", replay))
        assert verifier.body("complete")["end_leaf"] == leaves[segment + 1]
    Workspace(tmp_path).slot_state(JOB, 3, following["slot_state_cid"]).unlink()
    with pytest.raises(SlotStateMissing):
        work(second, tmp_path, executor, lease("reveal", asked))


def test_restored_start_is_equal_on_every_machine(
    store: StoreProcess, executor: Executor, two_rounds: dict[str, Any], tmp_path: Path
) -> None:
    first, second = Market(store), Market(store)
    task = two_rounds | {"slot": 4}
    training = task["spec"]["training_config"]
    fewer = TrainingSpec.from_dict(task["spec"] | {"training_config": training | {"top_k": training["top_k"] // 2}})
    work(first, tmp_path, executor, lease("train", task | {"spec": fewer.to_dict()}))  # the late unit sent half as much
    late = first.body("complete")
    following = next_task(task, late) | {"restored_payload_cid": late["payload_cid"]}
    work(second, tmp_path, executor, lease("train", following))
    leaves = second.body("complete")["leaves"]
    store.add(Workspace(tmp_path).slot_state(JOB, 4, late["slot_state_cid"]).read_bytes())
    replay = following | {"segment": 0, "start_leaf": leaves[0], "state_cid": None}
    verifier = Market(store)
    work(verifier, tmp_path / "verifier", executor, lease("replay", replay))
    assert verifier.body("complete")["end_leaf"] == leaves[1]
    with raises_code(ExecutorError, "start_state_mismatch"):  # not so without the payload
        work(verifier, tmp_path / "verifier", executor, lease("replay", replay | {"restored_payload_cid": None}))


def test_killed_node_resumes_background_upload(store: StoreProcess, executor: Executor, tmp_path: Path) -> None:
    content = b"a slot state" * 100_000
    (tmp_path / "state").write_bytes(content)
    cid = Workspace(tmp_path).keep_slot_state(JOB, 1, tmp_path / "state")
    held = lease("publish", {"job_id": JOB, "round": 0, "slot": 1, "slot_state_cid": cid})
    Workspace(tmp_path).store_lease(held)
    with pytest.raises(Killed):
        work(Market(store, at="upload", fault=Killed()), tmp_path, executor, held)
    assert not is_stored(store, cid)
    [again] = Workspace(tmp_path).stored_leases()
    market = Market(store)
    work(market, tmp_path, executor, again)
    assert market.order() == ["upload", "complete"]
    assert market.body("complete") == {"published_cid": cid}
    assert is_stored(store, cid)


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
