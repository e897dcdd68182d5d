"""What training and replaying start from: files named by the lease, fetched and verified."""

import logging
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from training_gym.aggregate.outer_step import downlink
from training_gym.data.dataset import DatasetManifest
from training_gym.spec.config import TrainingSpec
from training_gym.spec.manifests import MAX_MANIFEST_BYTES
from training_gym.units.checkpoint import CheckpointManifest
from zoo_compute.content.blockstore import BlockNotFound
from zoo_compute.content.gateway import GatewayClient
from zoo_compute.node.disk.workspace import Workspace

log = logging.getLogger(__name__)


class SlotStateMissing(Exception):
    """The slot state with this CID is neither here nor on storage.

    Attributes:
        code: what a unit is given up with for it; its slot then goes on from a fresh state.
    """

    code = "slot_state_missing"

    def __init__(self, cid: str) -> None:
        super().__init__(f"the slot state {cid} is neither on this node nor on storage")
        self.cid = cid


UNIT_FIELDS = (
    "spec",
    "job_id",
    "round",
    "slot",
    "checkpoint_cid",
    "slot_state_cid",
    "restored_payload_cid",
    "eager_payload_cid",
    "environment",
)
"""What determines a unit's result, of the fields of its lease: all that :func:`unit_task` reads."""


Run = Callable[[dict[str, Any]], dict[str, Any]]
"""Runs a task of :mod:`zoo_compute.node.execution.tasks`; returns its result. Raises ExecutorError."""


MAX_UPDATES = 64
"""Updates a node catches up by, at most: of each it reads the manifest first, one request after another."""


def most_updates(model_bytes: float, update_bytes: float) -> int:
    """How many updates of that size a node catches up by: those that together are smaller than the model."""
    return min(MAX_UPDATES, math.ceil(model_bytes / update_bytes) - 1)


MADE = "round %d's model made from round %d's by %d updates: %d bytes instead of %d"
"""What a node logs of it."""


def unit_task(task: dict[str, Any], workspace: Workspace, gateway: GatewayClient, run: Run) -> dict[str, Any]:
    """The fields that the executor's ``train`` and ``replay`` tasks share, with every input on disk.

    Args:
        run: for a ``catch_up`` task: a model is made of strangers' updates where they can do no harm.

    Raises:
        GymError: a manifest or the specification is malformed.
        ExecutorError: a model could not be made.
        SlotStateMissing: the slot state that the unit starts from is neither here nor on storage.
        ContentError, BlockNotFound, GatewayUnavailable: an input cannot be had.
    """
    model, data = model_and_data(task, workspace, gateway, run)
    payloads = {name: task[f"{name}_cid"] for name in ("restored_payload", "eager_payload")}
    return {
        "spec": task["spec"],
        "job_id": task["job_id"],
        "round": task["round"],
        "slot": task["slot"],
        "checkpoint": str(model),
        "train_data": str(data),
        "slot_state": _slot_state_file(task, workspace, gateway),
        **{name: None if cid is None else str(workspace.fetch(gateway, cid)) for name, cid in payloads.items()},
        "environment": task["environment"],
    }


def model_and_data(task: dict[str, Any], workspace: Workspace, gateway: GatewayClient, run: Run) -> tuple[Path, Path]:
    """The files of a job's model at a checkpoint, and of its training split; raises as :func:`unit_task`."""
    spec = TrainingSpec.from_dict(task["spec"])
    dataset = DatasetManifest.from_bytes(gateway.fetch(spec.dataset, max_bytes=MAX_MANIFEST_BYTES))
    checkpoint = CheckpointManifest.from_bytes(gateway.fetch(task["checkpoint_cid"], max_bytes=MAX_MANIFEST_BYTES))
    model = _model_file(spec, checkpoint, workspace, gateway, run)
    return model, workspace.fetch(gateway, dataset.train.cid)


def _slot_state_file(task: dict[str, Any], workspace: Workspace, gateway: GatewayClient) -> str | None:
    """What the unit starts from, if not from a fresh state: it lies here if a unit of this node handed it on."""
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
    """The checkpoint's model: made from an earlier one that is here by the updates since, else downloaded.

    Raises as :func:`unit_task`.
    """
    with workspace.single_flight(checkpoint.model):
        if spec.training.down_top_k and workspace.local_path(checkpoint.model) is None:
            with suppress(BlockNotFound):  # what leads there is gone: the model itself may not be
                _catch_up(spec, checkpoint, workspace, gateway, run)
        return workspace.fetch(gateway, checkpoint.model)


def _catch_up(
    spec: TrainingSpec, checkpoint: CheckpointManifest, workspace: Workspace, gateway: GatewayClient, run: Run
) -> None:
    """Make the model of the newest one at hand by the updates since, if they lead to it in fewer bytes than it has."""
    found = _way_from_a_base(spec, checkpoint, workspace, gateway)
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
        log.info(MADE, checkpoint.round, round_, len(updates), moved, size)


def _way_from_a_base(
    spec: TrainingSpec, checkpoint: CheckpointManifest, workspace: Workspace, gateway: GatewayClient
) -> tuple[int, Path, list[str]] | None:
    """The newest earlier model that is here, with its round, and the CIDs of the updates since, oldest first; fetches
    manifests only.

    None where no model is here that fewer bytes than the checkpoint's own lead from. Manifests do not say how large an
    update is, so each counts as the most that it may be.
    """
    model_bytes, updates = 4 * spec.num_parameters(), list[str]()
    if not workspace.has_file_of(model_bytes):
        return None  # a newcomer: no manifest would name what is here
    for _ in range(most_updates(model_bytes, downlink(spec).max_bytes)):
        if checkpoint.update is None or checkpoint.parent is None:
            return None
        updates.append(checkpoint.update)
        parent = gateway.fetch(checkpoint.parent, max_bytes=MAX_MANIFEST_BYTES)
        checkpoint = CheckpointManifest.from_bytes(parent)
        base = workspace.local_path(checkpoint.model)
        if base is not None:
            return checkpoint.round, base, updates[::-1]
    return None
