"""First checkpoints and losses of jobs on a base model."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from kit.base_models import manifest_of, weights_changed, write_base
from kit.jobs.jobs_fixtures import SPEC, World
from kit.jobs.rollbacks import why
from kit.training import SMALL, TINY
from sqlalchemy import select

from market.domain.lifecycle import JobStatus
from market.training.checkpoints.base_models import base_files
from market.training.checkpoints.models import Checkpoint
from market.training.checkpoints.service import load_parameters, model_loss
from market.training.rounds import service as rounds
from training_gym.model.base import completed_settings
from training_gym.model.folder import ModelManifest, load_files
from training_gym.model.layout import initial_parameters
from training_gym.model.tensors import write_arrays
from training_gym.spec.config import TrainingSpec
from zoo_protocol.content.unixfs import cid_of_file

ADAPTER = {"r": 2, "target_modules": ["q_proj"]}


class BaseWorld:
    """A world whose jobs train on a base model of files on storage."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.folder = world, folder
        world.settings = world.settings.model_copy(update={"base_models_folder": folder / "copies"})
        write_base(folder / "base")

    def manifest(self) -> ModelManifest:
        """Store the files of the folder."""
        return manifest_of(self.folder / "base", lambda content: self.world.storage.put(content, max_bytes=1 << 20).cid)

    def spec(self, manifest: ModelManifest, adapter: dict[str, object] | None = None) -> TrainingSpec:
        """Return the specification of a job on this base."""
        base = self.world.storage.put(manifest.to_bytes(), max_bytes=1 << 20).cid
        model = completed_settings({"base": base, "sequence_length": 8}, manifest)
        data = {"dataset": self.world.spec.dataset}
        sections = {"model_config": model, "training_config": SPEC["training_config"], "data_config": data}
        return TrainingSpec.from_dict(sections if adapter is None else sections | {"adapter_config": adapter})

    def first_checkpoint(self, spec: TrainingSpec) -> Checkpoint:
        """Create a job and its first checkpoint."""
        job_id = self.world.job(document=spec.to_dict() | {"data_config": {"dataset": spec.dataset}})
        settings, storage = self.world.settings, self.world.storage
        assert rounds.build_initial_checkpoint(self.world.database, settings, storage, job_id) is None
        found: Checkpoint
        [found] = self.world.all(select(Checkpoint).where(Checkpoint.job_id == job_id))
        return found


@pytest.fixture
def on_base(world: World, tmp_path: Path) -> BaseWorld:
    return BaseWorld(world, tmp_path)


def test_job_on_base_starts_from_its_tensors(on_base: BaseWorld) -> None:
    manifest = on_base.manifest()
    spec = on_base.spec(manifest)
    checkpoint = on_base.first_checkpoint(spec)
    found = load_parameters(on_base.world.storage, spec, checkpoint.cid)
    expected = dict(load_files(spec.model, {name: on_base.folder / "base" / name for name in manifest.weights()}))
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    assert all(on_base.world.storage.is_pinned(file.cid) for file in manifest.files.values())


def test_adapter_starts_with_the_loss_of_its_base(on_base: BaseWorld) -> None:
    manifest = on_base.manifest()
    whole = on_base.first_checkpoint(on_base.spec(manifest))
    spec = on_base.spec(manifest, ADAPTER)
    adapted = on_base.first_checkpoint(spec)
    found = load_parameters(on_base.world.storage, spec, adapted.cid)
    assert found.keys() == initial_parameters(spec).keys()
    assert adapted.validation_loss == whole.validation_loss
    world = on_base.world
    changed = {name: values + np.float32(0.5) for name, values in found.items()}
    assert model_loss(world.storage, world.settings, spec, changed, 0).validation_loss != whole.validation_loss


def _rewritten(folder: Path, on_base: BaseWorld, value: float | None) -> ModelManifest:
    """Store the weights with another value, or without a tensor."""
    tensors = dict(load_files(TINY, {"model.safetensors": folder / "model.safetensors"}))
    first = min(tensors)
    if value is None:
        tensors[first] = tensors[first][:-1]
    else:
        tensors[first][0] = value
    write_arrays(folder / "model.safetensors", tensors)
    return on_base.manifest()


@pytest.mark.parametrize("adapter", [None, ADAPTER])
@pytest.mark.parametrize("poison", ["nan", "shape", "digest", "missing", "other"])
def test_poisoned_base_ends_the_job(on_base: BaseWorld, poison: str, adapter: dict[str, object] | None) -> None:
    good, folder = on_base.manifest(), on_base.folder / "base"
    absent = cid_of_file(os.urandom(8))
    changes: dict[str, Callable[[], ModelManifest]] = {
        "nan": lambda: _rewritten(folder, on_base, float("nan")),
        "shape": lambda: _rewritten(folder, on_base, None),
        "digest": lambda: weights_changed(good, sha256="0x" + "00" * 32),
        "missing": lambda: weights_changed(good, cid=absent),
        "other": lambda: weights_changed(good, cid=on_base.world.storage.put(b"pickle" * 999, max_bytes=1 << 20).cid),
    }
    spec = on_base.spec(changes[poison](), adapter)
    job_id = on_base.world.job(document=spec.to_dict() | {"data_config": {"dataset": spec.dataset}})
    on_base.world.dispatch(job_id)
    row = on_base.world.read(job_id)
    assert (row.status, row.reason) == (JobStatus.CANCELLED, "base_unusable")
    assert ("settlement.settle", ()) in on_base.world.wakes.seen


def test_unusable_start_model_ends_the_job(world: World) -> None:
    document = world.spec.to_dict()
    document["data_config"]["start_model"] = world.storage.put(b"no tensors" * 99, max_bytes=1 << 20).cid
    job_id = world.job(document=document)
    world.dispatch(job_id)
    row = world.read(job_id)
    assert (row.status, row.reason) == (JobStatus.CANCELLED, "start_unusable")
    [sentence] = why(world, job_id, "ended")
    assert sentence.endswith("(start_unusable). Its start model or checkpoint was lost, or does not fit the job.")


def test_oldest_copies_of_bases_are_removed(on_base: BaseWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world, copies = on_base.world, on_base.folder / "copies"
    first = on_base.spec(on_base.manifest())
    [one] = base_files(world.storage, world.settings, first).values()
    os.utime(one, (1, 1))
    write_base(on_base.folder / "base", SMALL)
    second = on_base.spec(on_base.manifest())
    [two] = base_files(world.storage, world.settings, second).values()
    assert sorted(copies.iterdir()) == sorted([one, two])
    write_base(on_base.folder / "base", seed=8)
    third = on_base.spec(on_base.manifest())
    none_left = world.settings.model_copy(update={"base_models_gib": 0})
    [three] = base_files(world.storage, none_left, third).values()
    assert list(copies.iterdir()) == [three]
    assert base_files(world.storage, none_left, third) == {"model.safetensors": three}
