"""Read models of checkpoints for other packages."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from market.training.checkpoints import repository as checkpoints_repository
from training_gym.units.checkpoint import CheckpointManifest


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    """Checkpoint; ``pins``: its proven holders, ascending. The loss is None until computed."""

    round: int
    cid: str
    model_cid: str
    validation_loss: str | None
    pins: list[str]


def checkpoints_of(session: Session, job_id: str) -> list[CheckpointSummary]:
    pins = checkpoints_repository.pins_of_job(session, job_id)
    return [
        CheckpointSummary(row.round, row.cid, row.model_cid, row.validation_loss, pins.get(row.id, []))
        for row in checkpoints_repository.checkpoints(session, job_id)
    ]


def checkpoint_files(manifest_cid: str, manifest: CheckpointManifest) -> list[str]:
    """Return the CIDs of a checkpoint's files without replica states, as in a pin proof."""
    state = [cid for cid in (manifest.outer_state, manifest.update, manifest.aggregation) if cid is not None]
    return [manifest_cid, manifest.model, *state]
