"""Evaluations of a job's first and final model by verifiers.

Two equal records of one environment class count: bits are equal within a class only. Each is paid like a replay, by its
share of a unit's work. No claim is shown to a verifier, so it has nothing to copy and commits to nothing beforehand.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from random import SystemRandom

from sqlalchemy.orm import Session

from market.domain.lifecycle import LeaseEvent
from market.domain.money import unit_price
from market.domain.nodes.reliability import DEMOTION_BPS
from market.jobs.models import Job
from market.platform.db.base import utc_now
from market.providers import service as providers
from market.providers.record import reliability
from market.providers.service import VerifierSummary
from market.settings import Settings
from market.training.checkpoints import repository as checkpoints_repository
from market.training.leases import repository as leases_repository
from market.training.leases.models import Lease
from market.training.leases.schemas import LeaseKind
from market.training.leases.service import abandon, create_lease
from training_gym.evaluate.sums import LossSums
from training_gym.spec.config import TrainingSpec
from training_gym.spec.costs import flops_per_evaluation, flops_per_unit

EQUAL = 2
"""Equal records that count."""

MOST_ASKED = 4
"""Verifiers asked about one model; then the market evaluates it."""


def agreed_record(session: Session, job_id: str, checkpoint_cid: str) -> LossSums | None:
    """Return the record of a checkpoint's losses on which verifiers agree, if any."""
    record, count = _most_common(_of_checkpoint(session, job_id, checkpoint_cid))
    return LossSums.from_bytes(record.encode()) if count >= EQUAL else None


def open_evaluations(session: Session, job_id: str, *, final: bool) -> int:
    """Return how many verifiers have yet to evaluate the job's first or ``final`` model."""
    first, others = _by_model(session, job_id)
    return len(_open(others if final else first))


def final_asked_at(session: Session, job_id: str) -> datetime | None:
    """Return when verifiers were first asked for the newest final model; None: for none."""
    _, final = _by_model(session, job_id)
    return min((one.created_at for one in final if _cid(one) == _cid(final[-1])), default=None)


def is_awaited(session: Session, settings: Settings, job: Job) -> bool:
    """Return True while verifiers evaluate the first or the newest final model.

    Others are asked for those who failed. A first model with a known loss is not awaited.
    """
    first, final = _by_model(session, job.id)
    row = checkpoints_repository.checkpoint(session, job.id, 0)
    if row is None or row.validation_loss is not None:
        first = []
    return any(
        agreed_record(session, job.id, _cid(leases[-1])) is None
        and request(session, settings, job, _cid(leases[-1]), leases[-1].task["split_samples"])
        for leases in (first, final)
        if leases
    )


def request(session: Session, settings: Settings, job: Job, checkpoint_cid: str, size: int) -> bool:
    """Ask as many verifiers as an agreement lacks; return False if too few are left.

    Their records must have as many samples as a split of ``size`` needs.
    They are of one class and of different owners, not the payer's. After the time of a replay none is asked. The caller
    has locked the job.
    """
    leases = _of_checkpoint(session, job.id, checkpoint_cid)
    asked = [one for one in leases if one.pulled_at is not None or one in _open(leases)]  # others were busy
    missing = EQUAL - _most_common(asked)[1] - len(_open(asked))
    if missing <= 0:
        return True
    latest = utc_now() - timedelta(seconds=settings.replay_seconds)
    if len(asked) + missing > MOST_ASKED or (leases and leases[0].created_at < latest):
        return False
    drawn = _draw(session, settings, job, asked, missing)
    for verifier in drawn:
        task = {
            "job_id": job.id,
            "spec": job.spec,
            "checkpoint_cid": checkpoint_cid,
            "split_samples": size,
            "environment": verifier.environment_class,
        }
        create_lease(
            session,
            kind=LeaseKind.EVALUATE,
            holder=verifier.address,
            job_id=job.id,
            task=task,
            seconds=settings.lease_seconds,
        )
    return bool(drawn)


def end_open(session: Session, job_id: str, checkpoint_cid: str) -> None:
    """End the evaluations of a model whose loss is known. The caller holds no lock."""
    for locked in leases_repository.lock_open_leases(session, job_id, kinds=[LeaseKind.EVALUATE]):
        if _cid(locked[2]) == checkpoint_cid:
            abandon(session, *locked, LeaseEvent.EXPIRE, "evaluated")


def record_result(session: Session, job: Job, lease: Lease, record: str) -> None:
    """Record an evaluation. With an agreement, pay those who agree, and count others as wrong."""
    lease.result = record
    known = [one for one in _of_checkpoint(session, job.id, _cid(lease)) if one.result is not None]
    agreed, count = _most_common(known)
    if count < EQUAL:  # no more are asked than an agreement lacks, so it comes with the last record
        return
    spec, now = TrainingSpec.from_dict(job.spec), utc_now()
    price = unit_price(job.clearing_price_wei or 0, job.unit_weight_us)
    samples = LossSums.from_bytes(agreed.encode()).samples
    replayed_wei = price * samples * flops_per_evaluation(spec) // flops_per_unit(spec)
    for one in known:
        if one.result == agreed:
            reliability.record_replay(session, one.holder, replayed_wei, now)
        else:
            reliability.record_wrong_evaluation(session, one.holder, now)


def _by_model(session: Session, job_id: str) -> tuple[list[Lease], list[Lease]]:
    """Return the leases for the first model, and those for models of the last round."""
    row, leases = checkpoints_repository.checkpoint(session, job_id, 0), leases_repository.evaluations(session, job_id)
    first = [one for one in leases if row is not None and _cid(one) == row.cid]
    return first, [one for one in leases if one not in first]


def _of_checkpoint(session: Session, job_id: str, checkpoint_cid: str) -> list[Lease]:
    return [one for one in leases_repository.evaluations(session, job_id) if _cid(one) == checkpoint_cid]


def _cid(lease: Lease) -> str:
    return str(lease.task["checkpoint_cid"])


def _open(leases: Sequence[Lease]) -> list[Lease]:
    return [one for one in leases if one.status in leases_repository.OPEN_LEASE]


def _most_common(leases: Sequence[Lease]) -> tuple[str, int]:
    """Return the most frequent record and its number; 0 without records."""
    counted = Counter(one.result for one in leases if one.result is not None)
    return max(counted.items(), key=lambda found: found[1], default=("", 0))


def _draw(session: Session, settings: Settings, job: Job, asked: Sequence[Lease], count: int) -> list[VerifierSummary]:
    """Draw ``count`` verifiers by weight, demoted ones last; empty if there are fewer."""
    excluded = providers.of_same_owner(session, job.payer).union(
        *(providers.of_same_owner(session, one.holder) for one in asked)
    )
    live = [one for one in providers.live_verifiers(session, settings, utc_now()) if one.address not in excluded]
    for environment_class in _classes(settings, job, asked, live):
        drawn: list[VerifierSummary] = []
        left = [one for one in live if one.environment_class == environment_class]
        while left and len(drawn) < count:
            preferred = [one for one in left if one.reliability_bps >= DEMOTION_BPS] or left
            drawn += SystemRandom().choices(preferred, [one.weight for one in preferred])
            owned = providers.of_same_owner(session, drawn[-1].address)
            left = [one for one in left if one.address not in owned]
        if len(drawn) == count:
            return drawn
    return []


def _classes(
    settings: Settings, job: Job, asked: Sequence[Lease], live: Collection[VerifierSummary]
) -> Sequence[str | None]:
    """Return the classes to draw from, in order: that of those asked before, or the job's.

    With the operator's list of classes the others follow, the most frequent first. Without it two nodes of an invented
    class would be drawn for certain.
    """
    if asked:
        return [str(asked[0].task["environment"])]
    if settings.accepted_classes is None:
        return [job.environment_class]
    found = Counter(one.environment_class for one in live)
    return sorted(found, key=lambda one: (one != job.environment_class, -found[one], one))
