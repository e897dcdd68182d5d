"""Inputs of training and replay: files named by the lease, fetched and verified."""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from training_gym.aggregate.outer_step import downlink
from training_gym.data.dataset import DatasetManifest, Shard, Split, evaluated_numbers, spread_places, unit_places
from training_gym.data.order import SampleOrder
from training_gym.data.shards import Layout
from training_gym.evaluate.extent import evaluation_limit
from training_gym.spec.config import TrainingSpec
from training_gym.spec.manifests import MAX_MANIFEST_BYTES
from training_gym.units.checkpoint import CheckpointManifest
from zoo_compute.content.base_models import fetch_base
from zoo_compute.content.blockstore import BlockNotFound
from zoo_compute.content.gateway import GatewayClient
from zoo_compute.node.disk.workspace import Workspace
from zoo_protocol.payments.job_record import INPUT_FILES

log = logging.getLogger(__name__)


class SlotStateMissing(Exception):
    """The replica state with this CID is neither on this node nor on storage.

    Attributes:
        code: reason of giving up the unit; its replica then continues from a fresh state.
    """

    code = "slot_state_missing"

    def __init__(self, cid: str) -> None:
        super().__init__(f"the replica state {cid} is neither on this node nor on storage")
        self.cid = cid


UNIT_FIELDS = ("spec", "job_id", "round", "slot", *INPUT_FILES, "environment")
"""Fields of a lease that determine a unit's result: all that :func:`unit_task` reads."""

Run = Callable[[dict[str, Any]], dict[str, Any]]
"""Runs a task of :mod:`zoo_compute.node.execution.tasks` and returns its result. Raises ExecutorError."""

MAX_UPDATES = 64
"""Maximum number of updates to catch up by. Manifests are read one after another."""


def max_updates(model_bytes: float, update_bytes: float) -> int:
    """Return how many updates of that size are together smaller than the model."""
    return min(MAX_UPDATES, math.ceil(model_bytes / update_bytes) - 1)


MODEL_MADE = "model_made round=%d base_round=%d updates=%d bytes=%d model_bytes=%d"
"""Log line of a model that was rebuilt from updates."""


def unit_task(task: dict[str, Any], workspace: Workspace, gateway: GatewayClient, run: Run) -> dict[str, Any]:
    """Return the fields that ``train`` and ``replay`` tasks share, with every input on disk.

    Args:
        run: runs a ``catch_up`` task. Updates come from untrusted peers, so the sandboxed process applies them.

    Raises:
        GymError: a manifest or the specification is malformed.
        ExecutorError: a model could not be made.
        SlotStateMissing: the replica state is neither on this node nor on storage.
        ContentError, BlockNotFound, GatewayUnavailable: an input cannot be fetched.
    """
    spec = TrainingSpec.from_dict(task["spec"])
    base = base_files(spec, workspace, gateway)  # first: a job whose base is refused downloads nothing else
    model, data, validation = _model_and_data(task, [task["slot"]], workspace, gateway, run)
    payloads = {name: task[f"{name}_cid"] for name in ("restored_payload", "eager_payload")}
    return {
        "spec": task["spec"],
        "job_id": task["job_id"],
        "round": task["round"],
        "slot": task["slot"],
        "checkpoint": str(model),
        "train_data": data,
        "validation_data": validation,
        "base": base,
        "slot_state": _slot_state_file(task, workspace, gateway),
        **{name: None if cid is None else str(workspace.fetch(gateway, cid)) for name, cid in payloads.items()},
        "environment": task["environment"],
    }


def prefetch(task: dict[str, Any], workspace: Workspace, gateway: GatewayClient, run: Run) -> None:
    """Fetch what any replica of a job would read in this round; raises as :func:`unit_task`."""
    spec = TrainingSpec.from_dict(task["spec"])
    base_files(spec, workspace, gateway)
    _model_and_data(task, range(spec.replicas), workspace, gateway, run)


def model_task(task: dict[str, Any], workspace: Workspace, gateway: GatewayClient, run: Run) -> dict[str, Any]:
    """Return the fields of an ``evaluate`` task of the final model; raises as :func:`unit_task`."""
    spec = TrainingSpec.from_dict(task["spec"])
    base = base_files(spec, workspace, gateway)
    most = evaluation_limit(spec, spec.training.rounds)

    def places(order: SampleOrder) -> list[tuple[int, int]]:
        return spread_places(order, range(min(most, order.size)))

    model, dataset = _model_and_dataset(task, spec, workspace, gateway, run)
    data = _shards(spec, dataset.layout, dataset.validation, places, workspace, gateway)
    files = {"checkpoint": str(model), "validation_data": data, "base": base}
    return {"spec": task["spec"], "environment": task["environment"], **files}


def _model_and_dataset(
    task: dict[str, Any], spec: TrainingSpec, workspace: Workspace, gateway: GatewayClient, run: Run
) -> tuple[Path, DatasetManifest]:
    dataset = DatasetManifest.from_bytes(gateway.fetch(spec.dataset, max_bytes=MAX_MANIFEST_BYTES))
    checkpoint = CheckpointManifest.from_bytes(gateway.fetch(task["checkpoint_cid"], max_bytes=MAX_MANIFEST_BYTES))
    return _model_file(spec, checkpoint, workspace, gateway, run), dataset


def _model_and_data(
    task: dict[str, Any], slots: Sequence[int], workspace: Workspace, gateway: GatewayClient, run: Run
) -> tuple[Path, dict[str, Any], dict[str, Any] | None]:
    """Return a job's model, and the shards that units of these slots train on and evaluate."""
    spec = TrainingSpec.from_dict(task["spec"])
    steps = range(spec.training.inner_steps)

    def read(order: SampleOrder) -> Iterator[tuple[int, int]]:
        return chain.from_iterable(unit_places(spec, order, task["round"], slot, steps) for slot in slots)

    def evaluated(order: SampleOrder) -> Iterator[tuple[int, int]]:
        return chain.from_iterable(spread_places(order, evaluated_numbers(spec, slot, order)) for slot in slots)

    model, dataset = _model_and_dataset(task, spec, workspace, gateway, run)
    train = _shards(spec, dataset.layout, dataset.train, read, workspace, gateway)
    if not spec.validation_samples:
        return model, train, None
    return model, train, _shards(spec, dataset.layout, dataset.validation, evaluated, workspace, gateway)


def _shards(
    spec: TrainingSpec,
    layout: Layout,
    shards: Sequence[Shard],
    places: Callable[[SampleOrder], Iterable[tuple[int, int]]],
    workspace: Workspace,
    gateway: GatewayClient,
) -> dict[str, Any]:
    """Return a split for a task, with the shards of the samples that ``places`` names."""
    sizes = [shard.size for shard in shards]
    read = {shard for shard, _ in places(Split(spec, layout, sizes, {}).order)}
    files = {str(shard): str(workspace.fetch(gateway, shards[shard].cid)) for shard in sorted(read)}
    return {"layout": asdict(layout), "sizes": sizes, "files": files}


def base_files(spec: TrainingSpec, workspace: Workspace, gateway: GatewayClient) -> dict[str, str] | None:
    """Return the weights of a base model that units read as files by name; else None.

    Jobs share them, as all inputs. Raises as :func:`zoo_compute.content.base_models.fetch_base`.
    """
    if not spec.reads_base:
        return None
    files = fetch_base(spec, gateway, lambda file: workspace.fetch(gateway, file.cid, max_bytes=file.size))
    return {name: str(path) for name, path in files.items()}


def _slot_state_file(task: dict[str, Any], workspace: Workspace, gateway: GatewayClient) -> str | None:
    """Return the replica state that the unit starts from; None is a fresh state."""
    cid = task["slot_state_cid"]
    if cid is None:
        return None
    own = workspace.kept_slot_state(task["job_id"], task["slot"], cid)
    if own is not None:
        own.touch()
        return str(own)
    try:
        return str(workspace.fetch(gateway, cid))
    except BlockNotFound as error:
        raise SlotStateMissing(cid) from error


def _model_file(
    spec: TrainingSpec, checkpoint: CheckpointManifest, workspace: Workspace, gateway: GatewayClient, run: Run
) -> Path:
    """Return the checkpoint's model, made from a local earlier one and updates, or downloaded."""
    with workspace.single_flight(checkpoint.model):
        if spec.training.down_top_k and workspace.local_path(checkpoint.model) is None:
            with suppress(BlockNotFound):  # a missing manifest or update does not imply a missing model
                _catch_up(spec, checkpoint, workspace, gateway, run)
        return workspace.fetch(gateway, checkpoint.model)


def _catch_up(
    spec: TrainingSpec, checkpoint: CheckpointManifest, workspace: Workspace, gateway: GatewayClient, run: Run
) -> None:
    """Make the model from the newest local one if the updates have fewer bytes than the model."""
    found = _path_from_base(spec, checkpoint, workspace, gateway)
    if found is None:
        return
    round_, base, cids = found
    updates = [workspace.fetch(gateway, cid, max_bytes=downlink(spec).max_bytes) for cid in cids]
    moved = sum(update.stat().st_size for update in updates)
    made = workspace.file(checkpoint.model).with_suffix(".made")
    task = {"kind": "catch_up", "spec": spec.to_dict(), "checkpoint": str(base), "updates": [*map(str, updates)]}
    run({**task, "output": str(made)})
    size = made.stat().st_size
    if workspace.take(made, checkpoint.model):
        log.info(MODEL_MADE, checkpoint.round, round_, len(updates), moved, size)


def _path_from_base(
    spec: TrainingSpec, checkpoint: CheckpointManifest, workspace: Workspace, gateway: GatewayClient
) -> tuple[int, Path, list[str]] | None:
    """Find the newest local earlier model; fetches manifests only.

    Manifests do not contain the size of an update, so each counts with its maximum size.

    Returns:
        Its round, its file and the CIDs of the later updates, oldest first; None if downloading is not larger.
    """
    model_bytes, updates = 4 * spec.num_parameters(), list[str]()
    if not workspace.has_file_of(model_bytes):
        return None  # a new node has no model
    for _ in range(max_updates(model_bytes, downlink(spec).max_bytes)):
        if checkpoint.update is None or checkpoint.parent is None:
            return None
        updates.append(checkpoint.update)
        parent = gateway.fetch(checkpoint.parent, max_bytes=MAX_MANIFEST_BYTES)
        checkpoint = CheckpointManifest.from_bytes(parent)
        base = workspace.local_path(checkpoint.model)
        if base is not None:
            return checkpoint.round, base, updates[::-1]
    return None
