"""A node's base models: shared between jobs, and refused before a unit trains on them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.base_models import manifest_of, weights_changed, write_base
from kit.engines.ipfs_processes import StoreProcess
from kit.errors import raises_code, raising
from kit.nodes.node_work_fixtures import JOB, TEXT
from kit.training import SMALL, TINY

from training_gym.data.dataset import DatasetManifest, describe_shard
from training_gym.model.base import completed_settings
from training_gym.model.folder import ModelManifest
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import GymError
from training_gym.units.checkpoint import CheckpointManifest, initial_checkpoint
from zoo_compute.content.gateway import GatewayClient
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.execution.tasks import take_unit
from zoo_compute.node.work.inputs import unit_task

run_nothing = raising(AssertionError)


def adapter_task(store: StoreProcess, manifest: ModelManifest, seed: int = 0) -> dict[str, Any]:
    """Return the lease's task of an adapter's first unit, whose files are on ``store``."""
    split = describe_shard(store.add(TEXT), TEXT)
    settings = {"base": store.add(manifest.to_bytes()), "sequence_length": 8}
    document = {
        "model_config": completed_settings(settings, manifest),
        "adapter_config": {"r": 2},
        "data_config": {"dataset": store.add(DatasetManifest((split,), (split,)).to_bytes())},
        "training_config": {"seed": seed},
    }
    spec = TrainingSpec.from_dict(document)
    model = store.add(initial_checkpoint(spec))
    checkpoint = CheckpointManifest(JOB, 0, None, model, None, None, None, {}, 0, spec.spec_hash())
    nothing = dict.fromkeys(("slot_state_cid", "restored_payload_cid", "eager_payload_cid"))
    place = {"job_id": JOB, "round": 0, "slot": 0, "environment": JOB}
    return {"spec": spec.to_dict(), "checkpoint_cid": store.add(checkpoint.to_bytes())} | place | nothing


def test_jobs_share_base_fetched_once(store: StoreProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_base(tmp_path / "base")
    manifest = manifest_of(tmp_path / "base", store.add)
    workspace = Workspace(tmp_path / "node")
    with GatewayClient([store.gateway_url], attempts=1) as gateway:
        fetched = list[str]()
        original = gateway.download

        def counted(cid: str, path: Path, **limits: int) -> int:
            fetched.append(cid)
            return original(cid, path, **limits)

        monkeypatch.setattr(gateway, "download", counted)
        tasks = [unit_task(adapter_task(store, manifest, seed), workspace, gateway, run_nothing) for seed in (1, 2)]
    [file] = manifest.files.values()
    assert fetched.count(file.cid) == 1
    assert tasks[0]["base"] == tasks[1]["base"] == {"model.safetensors": str(workspace.file(file.cid))}
    assert take_unit(tasks[0], JOB, "cpu").base == {"model.safetensors": workspace.file(file.cid)}


@pytest.mark.parametrize(
    ("poison", "code"),
    [
        (lambda good, other: ModelManifest(good.config, other.files), "wrong_tensors"),
        (lambda good, other: weights_changed(good, size=next(iter(good.files.values())).size + 8), "wrong_size"),
    ],
)
def test_base_unlike_its_manifest_is_refused(
    store: StoreProcess, tmp_path: Path, poison: Callable[[ModelManifest, ModelManifest], ModelManifest], code: str
) -> None:
    write_base(tmp_path / "base", TINY)
    write_base(tmp_path / "other", SMALL)
    good, other = (manifest_of(tmp_path / name, store.add) for name in ("base", "other"))
    with GatewayClient([store.gateway_url], attempts=1) as gateway, raises_code(GymError, code):
        unit_task(adapter_task(store, poison(good, other)), Workspace(tmp_path / "node"), gateway, run_nothing)
