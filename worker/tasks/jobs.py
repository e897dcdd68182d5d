"""Tasks of auction rounds and of a job's outer rounds."""

from celery import shared_task

from market.auctions import clearing
from market.training.aggregation import service as aggregation
from market.training.aggregation import tree
from market.training.evaluation import service as evaluation
from market.training.generation import service as generation
from market.training.rounds import service as rounds
from worker.context import context


@shared_task(name="auctions.clear")
def clear() -> None:
    """Close every due auction round, and clear those without a random tie-break."""
    c = context()
    clearing.clear_due(c.database, c.settings, c.network)


@shared_task(name="auctions.draw")
def draw() -> None:
    """Clear the closed auction rounds whose random tie-break has its seed."""
    c = context()
    clearing.draw_due(c.database, c.settings, c.network, c.chain)


@shared_task(name="jobs.dispatch")
def dispatch(job_id: str) -> None:
    """Offer the units of the job's round, and fill vacant replicas."""
    c = context()
    rounds.dispatch(c.database, c.settings, c.storage, job_id)


@shared_task(name="jobs.aggregate")
def aggregate(job_id: str) -> None:
    """Close the job's round if it is due: aggregate, and store the next checkpoint."""
    c = context()
    aggregation.aggregate(c.database, c.settings, c.storage, job_id)


@shared_task(name="jobs.aggregate_leaf")
def aggregate_leaf(job_id: str, round_: str, leaf: str) -> None:
    """Summarise or sum the payloads of one leaf of a round's tree, whichever is due."""
    c = context()
    tree.work_leaf(c.database, c.settings, c.storage, job_id, int(round_), int(leaf))


@shared_task(name="jobs.validate")
def validate(job_id: str) -> None:
    """Compute the pending validation losses of the job."""
    c = context()
    evaluation.validate(c.database, c.settings, c.storage, job_id)


@shared_task(name="jobs.generate")
def generate() -> None:
    """Generate the texts of waiting samples of models."""
    c = context()
    generation.generate_waiting(c.database, c.settings, c.storage)
