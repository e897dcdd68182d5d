"""Requests for new jobs from old ones: a clone, or a continuation.

The payer signs the new job as any other. An order on chain has a fixed budget, so more budget needs a further job
(decision 3).
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy.orm import Session

from market.accounts.service import Principal
from market.domain.lifecycle import JobStatus
from market.domain.network import NetworkParameters
from market.domain.verification.sampling import DIVERGED
from market.jobs import repository as jobs_repository
from market.jobs.access import visible_job
from market.jobs.models import Job
from market.orders.errors import NothingToContinue
from market.orders.quote_advice import Advice
from market.orders.schemas import CloneJob, ExtendJob, JobSpec
from market.platform.db.base import utc_now
from market.platform.http.types import LAST_INSTANT
from market.training.aggregation.rollback import continued_checkpoint
from market.training.checkpoints import repository as checkpoints_repository
from market.training.units import repository as units_repository
from training_gym.units.continuations import continuation, settings_on_nodes, with_rate_shares

_TRAINS = (JobStatus.SUBMITTED, JobStatus.FUNDED, JobStatus.MATCHING, JobStatus.RUNNING)
_MIN_WAIT = timedelta(minutes=10)


def clone(
    session: Session, network: NetworkParameters, principal: Principal, job_id: str, changes: CloneJob
) -> JobSpec:
    """Return the job's request with ``changes``; by default with an equally long wait.

    Raises:
        JobNotFound: the job does not exist, or the caller may not see it.
    """
    job = visible_job(session, principal, job_id)
    return _request(network, job, job.spec, changes.model_dump(exclude_none=True))


def extend(
    session: Session, network: NetworkParameters, principal: Principal, job_id: str, changes: ExtendJob
) -> tuple[JobSpec, list[Advice]]:
    """Return a request for a job's continuation, and advice on its rates.

    By default it has the missing rounds. It starts from the last checkpoint, or from the best one if the last is
    spoiled, with its outer state. The place in schedule and data follows the last round in both cases, so that no data
    are read again (:func:`continuation`).

    Raises:
        JobNotFound: the job does not exist, or the caller may not see it.
        NothingToContinue: it still trains, has no checkpoint of its own, or the loss of that is not known yet.
    """
    job = visible_job(session, principal, job_id)
    if job.status in _TRAINS and not (job.status == JobStatus.RUNNING and job.paused_at is not None):
        raise NothingToContinue(
            f"status is {job.status}; expected an ended or paused job.", remedy="Wait for its end, pause or cancel it."
        )
    if job.status == JobStatus.RUNNING and _has_begun_round(session, job):
        raise NothingToContinue(
            "Its nodes have begun a round, whose data a continuation would read and pay again.",
            remedy="Ask again when the round has ended. If it lacks nodes, resume or cancel the job.",
        )
    found = checkpoints_repository.checkpoints(session, job_id)
    if len(found) < 2:  # none, or the initial one
        raise NothingToContinue(
            "The job has no completed round.",
            remedy=f"Start it again: zoo-compute job clone {job_id} (POST /v1/jobs/{{id}}/clone).",
        )
    given = changes.model_dump(exclude_none=True)
    rounds = given.pop("rounds", None) or job.rounds - job.current_round or job.rounds
    start = continued_checkpoint(job, found, units_repository.units_of_round(session, job_id, found[-1].round))
    is_evaluated = start.validation_loss is not None or job.status in jobs_repository.TERMINAL_STATUSES
    if not is_evaluated:
        raise NothingToContinue(
            f"The loss after round {start.round} is not known yet, so the model may be spoiled.",
            remedy="Ask again in some minutes.",
        )
    shares = {name: given.pop(name, None) for name in ("final_rate_share", "start_rate_share")}
    spec = with_rate_shares(continuation(job.spec, found[-1].round, start.cid, rounds), shares)
    advice = [] if changes.start_rate_share is not None else list(_advice_on_rates(job, found[-1].round, spec))
    return _request(network, job, spec, given), advice


def _advice_on_rates(job: Job, done: int, spec: Mapping[str, Any]) -> Iterator[Advice]:
    share = spec["data_config"]["start_rate_share"]
    if job.reason == DIVERGED:
        yield Advice(
            code="diverged_rates",
            detail=f"The job before diverged, and this one begins at its learning rates, {share:.2g} of the peak.",
            remedy=f"Extend the job with a lower start_rate_share, at first {share / 3:.1g}.",
            field="start_rate_share",
        )
    elif done == job.rounds and not job.spec["training_config"]["final_rate_share"]:
        yield Advice(
            code="restarted_rates",
            detail="The learning rates of the job before have decayed to 0; those of this one begin as high as they "
            "did. The loss may rise at first, and a spike is rolled back.",
            remedy="For a low loss, extend the job with a start_rate_share of 0.3 or less.",
            field="start_rate_share",
        )


def _has_begun_round(session: Session, job: Job) -> bool:
    """Return True while a paused job has units that no checkpoint has, or nodes."""
    begun = (*units_repository.OPEN_UNIT, *units_repository.DELIVERED_UNIT)
    units = (units_repository.units_of_round(session, job.id, job.current_round + one) for one in (0, 1))
    held = any(slot.provider is not None for slot in jobs_repository.slots(session, job.id))
    return held or any(unit.status in begun for of_round in units for unit in of_round)


def _request(network: NetworkParameters, job: Job, spec: Mapping[str, Any], changes: Mapping[str, Any]) -> JobSpec:
    wait = max(job.wait_until - job.created_at, _MIN_WAIT)
    data = settings_on_nodes(spec["data_config"], changes.get("nodes", job.nodes))
    data.setdefault("validation_samples", 0)  # left out of a specification, filled in by a request
    requirements = {name: value for name, value in job.requirements.items() if name != "min_mflops"}  # of the units
    return JobSpec.model_validate(
        {
            **spec,
            "data_config": data,
            "name": job.name,
            "tier": next(tier.name for tier in network.tiers if tier.id == job.tier_id),
            "nodes": job.nodes,
            "budget_max": str(job.budget_wei),
            "max_price": str(job.max_price_wei),
            "wait_until": min(utc_now() + wait, LAST_INSTANT).replace(microsecond=0),
            "requirements": requirements,
            "checkpoint": {"interval": job.checkpoint_interval, "redundancy": job.redundancy},
            "sampling_bps": job.sampling_bps,
            **{key: str(value) if key in ("budget_max", "max_price") else value for key, value in changes.items()},
        }
    )
