"""Rules for the checkpoints that must be kept and copied."""

from collections.abc import Mapping
from datetime import timedelta

from sqlalchemy.orm import Session

from market.jobs.models import Job
from market.training.checkpoints import repository as checkpoints_repository
from market.training.checkpoints.models import Checkpoint

PIN_GRACE = timedelta(seconds=60)
"""How long a trained job waits for proofs that its checkpoints are pinned before it is settled without them."""


def is_kept(job: Job, checkpoint: Checkpoint) -> bool:
    """Whether nodes keep it: every ``checkpoint_interval``-th one, the initial and the final one among them."""
    return checkpoint.round % job.checkpoint_interval == 0 or checkpoint.round == job.rounds


def missing_pins(session: Session, job: Job) -> Mapping[int, int]:
    """By id of each checkpoint that is to be kept by ``redundancy`` nodes: how many more proofs it needs."""
    holders = checkpoints_repository.pins_of_job(session, job.id)
    return {
        checkpoint.id: lacking
        for checkpoint in checkpoints_repository.checkpoints(session, job.id)
        if is_kept(job, checkpoint)
        if (lacking := job.redundancy - len(holders.get(checkpoint.id, []))) > 0
    }
