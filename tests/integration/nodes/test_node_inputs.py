"""A node builds a model from an older one and the updates; false data is refused."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kit.engines.ipfs_processes import StoreProcess, faulty
from kit.errors import raising
from kit.nodes.node_work_fixtures import JOB, MODEL, TEXT

from training_gym.aggregate.outer_step import initial_outer_state, outer_step
from training_gym.data.dataset import DatasetManifest, describe_shard
from training_gym.spec.config import TrainingSpec
from training_gym.units.checkpoint import CheckpointManifest, initial_checkpoint, load_state, save_state
from zoo_compute.content.blockstore import BlockNotFound
from zoo_compute.content.gateway import GatewayClient
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.execution.tasks import catch_up_model
from zoo_compute.node.work.inputs import MAX_UPDATES, MODEL_MADE, max_updates, prefetch, unit_task
from zoo_protocol.content.unixfs import cid_of_file

_SEEDS = count(5)
"""Of the updates: no test finds a model in the store that another one added."""


class History:
    """Checkpoints of rounds 0 to ``rounds``; the store has only the first model."""

    def __init__(self, store: StoreProcess, rounds: int, **settings: int) -> None:
        self.store = store
        split = describe_shard(store.add(TEXT), TEXT)
        dataset = store.add(DatasetManifest((split,), (split,)).to_bytes())
        training = {"down_top_k": 64} | settings
        document = {"model_config": MODEL, "data_config": {"dataset": dataset}, "training_config": training}
        self.spec = TrainingSpec.from_dict(document)
        self.models = [initial_checkpoint(self.spec)]
        self.updates: list[bytes] = []
        self.manifests = [self._manifest(0, None, store.add(self.models[0]), None)]
        self._train(rounds)

    def _train(self, rounds: int) -> None:
        noise, state = np.random.default_rng(next(_SEEDS)), initial_outer_state(self.spec)
        for round_ in range(1, rounds + 1):
            mean = noise.normal(0.0, 1e-3, self.spec.num_parameters()).astype(np.float32)
            step = outer_step(self.spec, load_state(self.spec, self.models[-1]), mean, state)
            state = step.state
            self.models.append(save_state(step.parameters))
            self.updates.append(step.update)
            model, update = cid_of_file(self.models[-1]), self.store.add(step.update)
            self.manifests.append(self._manifest(round_, self.cid(round_ - 1), model, update))

    def _manifest(self, round_: int, parent: str | None, model: str, update: str | None) -> CheckpointManifest:
        return CheckpointManifest(JOB, round_, parent, model, None, update, None, {}, 0, self.spec.spec_hash())

    def cid(self, round_: int) -> str:
        return self.store.add(self.manifests[round_].to_bytes())

    def task(self, checkpoint_cid: str) -> dict[str, Any]:
        task = {"job_id": JOB, "spec": self.spec.to_dict(), "round": 0, "slot": 0, "environment": JOB}
        nothing = dict.fromkeys(("slot_state_cid", "restored_payload_cid", "eager_payload_cid"))
        return task | {"checkpoint_cid": checkpoint_cid} | nothing


def caught_up(task: dict[str, Any]) -> dict[str, Any]:
    assert task["kind"] == "catch_up"
    catch_up_model(task)
    return {}


def model_of(history: History, directory: Path, checkpoints: Sequence[str], url: str | None = None) -> bytes:
    workspace = Workspace(directory)
    with GatewayClient([url or history.store.gateway_url], attempts=1) as gateway:
        for cid in checkpoints:
            task = unit_task(history.task(cid), workspace, gateway, caught_up)
    return Path(task["checkpoint"]).read_bytes()


def test_node_follows_updates_and_catches_up_over_several(store: StoreProcess, tmp_path: Path) -> None:
    history = History(store, rounds=4)
    assert model_of(history, tmp_path, [history.cid(0), history.cid(1), history.cid(4)]) == history.models[4]


def test_stopped_node_resumes_from_saved_checkpoint(
    store: StoreProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    history = History(store, rounds=4)
    model_of(history, tmp_path, [history.cid(0), history.cid(1)])
    caplog.set_level(logging.INFO)
    caplog.clear()
    assert model_of(history, tmp_path, [history.cid(4)]) == history.models[4]
    size = sum(len(update) for update in history.updates[1:])
    assert [record.getMessage() for record in caplog.records if "model_made" in record.msg] == [
        MODEL_MADE % (4, 1, 3, size, len(history.models[4]))
    ]


def test_file_damaged_while_stopped_is_not_used(store: StoreProcess, tmp_path: Path) -> None:
    history = History(store, rounds=3)
    model_of(history, tmp_path, [history.cid(0), history.cid(1), history.cid(2)])
    damaged = tmp_path / "files" / history.manifests[2].model
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    assert model_of(history, tmp_path, [history.cid(3)]) == history.models[3]
    assert not damaged.exists()
    assert list(damaged.parent.glob(f"{damaged.name}.damaged-*"))


def test_updates_with_wrong_result_are_rejected(store: StoreProcess, tmp_path: Path) -> None:
    history = History(store, rounds=2)
    other = replace(history.manifests[2], update=history.manifests[1].update)
    cid = store.add(other.to_bytes())
    with pytest.raises(BlockNotFound):
        model_of(history, tmp_path / "absent", [history.cid(0), cid])
    store.add(history.models[2])
    assert model_of(history, tmp_path / "there", [history.cid(0), cid]) == history.models[2]


def test_long_absent_node_downloads_model(store: StoreProcess, tmp_path: Path) -> None:
    history = History(store, rounds=MAX_UPDATES + 1)
    with pytest.raises(BlockNotFound):
        model_of(history, tmp_path, [history.cid(0), history.cid(MAX_UPDATES + 1)])
    assert model_of(history, tmp_path, [history.cid(0), history.cid(MAX_UPDATES)]) == history.models[MAX_UPDATES]


def test_new_node_fetches_model_once_without_old_rounds(store: StoreProcess, tmp_path: Path) -> None:
    history = History(store, rounds=4)
    store.add(history.models[4])
    newest, newer = history.cid(4), history.manifests[4].model
    earlier = {cid for one in history.manifests for cid in (one.update, one.parent) if cid is not None}
    with faulty(store.gateway_url, lambda _path, body: body) as (url, asked):
        assert model_of(history, tmp_path, [newest], url) == history.models[4]
    assert [cid for cid in earlier if any(cid in path for path in asked)] == []
    assert len([path for path in asked if newer in path]) == 1


def test_updates_are_skipped_when_larger_than_model(store: StoreProcess, tmp_path: Path) -> None:
    """An 8-bit update of all entries is a quarter of the model: three are smaller, four are not."""
    history = History(store, rounds=4, down_top_k=4096, down_value_bits=8)
    with faulty(store.gateway_url, lambda _path, body: body) as (url, asked):
        assert model_of(history, tmp_path / "three", [history.cid(0), history.cid(3)], url) == history.models[3]
        store.add(history.models[4])
        asked.clear()
        assert model_of(history, tmp_path / "four", [history.cid(0), history.cid(4)], url) == history.models[4]
    assert [one.update for one in history.manifests if one.update and any(one.update in path for path in asked)] == []


def test_node_downloads_model_when_updates_are_missing(store: StoreProcess, tmp_path: Path) -> None:
    history = History(store, rounds=2)
    store.add(history.models[2])
    for lost in ("update", "parent"):
        broken = replace(history.manifests[2], **{lost: cid_of_file(b"nobody stores this")})
        cid = store.add(broken.to_bytes())
        assert model_of(history, tmp_path / lost, [history.cid(0), cid]) == history.models[2]


@pytest.mark.parametrize(("update_bytes", "most"), [(1, MAX_UPDATES), (249, 4), (250, 3), (251, 3), (1000, 0)])
def test_updates_are_used_while_smaller_than_model(update_bytes: int, most: int) -> None:
    assert max_updates(1000, update_bytes) == most


def test_spare_prefetches_what_any_replica_reads(
    store: StoreProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [TEXT[start : start + 90] for start in range(0, 20 * 90, 90)]
    shards = tuple(describe_shard(store.add(text), text) for text in texts)
    data = {"dataset": store.add(DatasetManifest(shards, shards).to_bytes()), "replicas": 3, "validation_samples": 4}
    training = {"inner_steps": 6, "batch_size": 1}
    spec = TrainingSpec.from_dict({"model_config": MODEL, "data_config": data, "training_config": training})
    model = store.add(initial_checkpoint(spec))
    checkpoint = store.add(
        CheckpointManifest(JOB, 0, None, model, None, None, None, {}, 0, spec.spec_hash()).to_bytes()
    )
    task = {"job_id": JOB, "spec": spec.to_dict(), "round": 0, "checkpoint_cid": checkpoint}  # of a follow lease
    unit = task | {"environment": JOB, **dict.fromkeys(("slot_state_cid", "restored_payload_cid", "eager_payload_cid"))}
    workspace = Workspace(tmp_path)
    with GatewayClient([store.gateway_url], attempts=1) as gateway:
        prefetch(task, workspace, gateway, raising(AssertionError))
        monkeypatch.setattr(gateway, "download", raising(AssertionError))
        read = [unit_task(unit | {"slot": slot}, workspace, gateway, raising(AssertionError)) for slot in range(3)]
    files = {shard for one in read for shard in one["train_data"]["files"]}
    assert len({tuple(one["train_data"]["files"]) for one in read}) > 1
    assert len(files) < len(shards)
    evaluated = [tuple(one["validation_data"]["files"]) for one in read]
    assert len(set(evaluated)) == 3  # samples of the slots differ
    assert all(1 <= len(shards_read) <= 4 for shards_read in evaluated)
