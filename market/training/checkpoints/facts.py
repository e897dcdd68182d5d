"""Read models of checkpoints for other packages."""

from sqlalchemy.orm import Session

from market.platform.db.rows import from_row
from market.training.checkpoints import repository as checkpoints_repository
from training_gym.units.checkpoint import CheckpointManifest
from zoo_protocol.payments.job_record import CheckpointRecord


def checkpoints_of(session: Session, job_id: str) -> list[CheckpointRecord]:
    """Return a job's checkpoints with their proven holders, ascending."""
    pins = checkpoints_repository.pins_of_job(session, job_id)
    rows = checkpoints_repository.checkpoints(session, job_id)
    return [from_row(CheckpointRecord, row, pins=pins.get(row.id, [])) for row in rows]


def checkpoint_files(manifest_cid: str, manifest: CheckpointManifest) -> list[str]:
    """Return the CIDs of a checkpoint's files without replica states, as in a pin proof."""
    state = [cid for cid in (manifest.outer_state, manifest.update, manifest.aggregation) if cid is not None]
    return [manifest_cid, manifest.model, *state]
