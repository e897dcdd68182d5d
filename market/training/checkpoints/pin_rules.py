"""Rules for checkpoints that nodes keep."""

from collections.abc import Mapping
from datetime import timedelta

from sqlalchemy.orm import Session

from market.jobs.models import Job
from market.training.checkpoints import repository as checkpoints_repository
from market.training.checkpoints.models import Checkpoint

PIN_GRACE = timedelta(seconds=60)
"""A trained job waits this long for pin proofs of its checkpoints; then it is settled without them."""


def is_kept(job: Job, checkpoint: Checkpoint) -> bool:
    """Return True for the last and every ``checkpoint_interval``-th checkpoint."""
    return checkpoint.round % job.checkpoint_interval == 0 or checkpoint.round == job.rounds


def missing_pins(session: Session, job: Job) -> Mapping[int, int]:
    """Return by checkpoint id the pin proofs that are missing to ``redundancy``."""
    holders = checkpoints_repository.pins_of_job(session, job.id)
    return {
        checkpoint.id: lacking
        for checkpoint in checkpoints_repository.checkpoints(session, job.id)
        if is_kept(job, checkpoint)
        if (lacking := job.redundancy - len(holders.get(checkpoint.id, []))) > 0
    }
