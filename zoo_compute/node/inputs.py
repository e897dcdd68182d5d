"""What training and replaying start from: files named by the lease, fetched and verified."""

from typing import Any

from training_gym.checkpoint import CheckpointManifest
from training_gym.config import TrainingSpec
from training_gym.data.dataset import DatasetManifest
from training_gym.manifests import MAX_MANIFEST_BYTES
from zoo_compute.gateway import GatewayClient
from zoo_compute.node.workspace import Workspace


def unit_task(task: dict[str, Any], workspace: Workspace, gateway: GatewayClient) -> dict[str, Any]:
    """The fields that the executor's ``train`` and ``replay`` tasks share, with every input on disk.

    Raises:
        GymError: a manifest or the specification is malformed.
        ContentError, BlockNotFound, GatewayUnavailable: an input cannot be had.
    """
    spec = TrainingSpec.from_dict(task["spec"])
    dataset = DatasetManifest.from_bytes(gateway.fetch(spec.dataset, max_bytes=MAX_MANIFEST_BYTES))
    checkpoint = CheckpointManifest.from_bytes(gateway.fetch(task["checkpoint_cid"], max_bytes=MAX_MANIFEST_BYTES))
    feedback = task["error_feedback_cid"]
    return {
        "spec": task["spec"],
        "job_id": task["job_id"],
        "round": task["round"],
        "slot": task["slot"],
        "checkpoint": str(workspace.fetch(gateway, checkpoint.model)),
        "train_data": str(workspace.fetch(gateway, dataset.train.cid)),
        "error_feedback": None if feedback is None else str(workspace.fetch(gateway, feedback)),
        "environment": task["environment"],
    }
