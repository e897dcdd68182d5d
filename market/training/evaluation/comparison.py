"""Comparison of a job's models by the losses that units state, each on own samples.

While the learning rate rises, the loss may too, as after the start model of an extension. So models of the warm-up are
not compared.
"""

from collections.abc import Collection, Mapping

from sqlalchemy.orm import Session

from market.domain.verification.sampling import COMPARED_MODELS
from market.platform.db.session import Database
from market.training.checkpoints import repository as checkpoints_repository
from market.training.checkpoints.models import Checkpoint
from market.training.checkpoints.service import loss_in, loss_of
from market.training.units import repository as units_repository
from training_gym.evaluate.sums import near_median
from training_gym.exchange.deadlines import quorum
from training_gym.spec.config import TrainingSpec
from zoo_protocol.verification.training_faults import KnownLoss, has_risen, is_worse, rise

WORSE_MODEL = "worse_model"
"""Outlier flag of all units of a round whose model is worse than a recent one."""
_ERRORS = 3


def flag_if_worse(session: Session, spec: TrainingSpec, row: Checkpoint) -> None:
    """Flag the round before a checkpoint if its model is worse than recent ones. Lock the job."""
    earlier = checkpoints_repository.evaluated_between(session, row, _after_warmup(spec), COMPARED_MODELS)
    if not earlier:
        return
    best = min(earlier, key=lambda one: loss_in(one).known())
    losses = _unit_losses(session, spec, row.job_id, (best.cid, row.cid))
    if has_risen(_by_evaluator(best, losses), _by_evaluator(row, losses)):
        for unit in units_repository.included_units(session, row.job_id, row.round - 1):
            unit.doubts = [*(unit.doubts or []), WORSE_MODEL]


def better_models(database: Database, spec: TrainingSpec, job_id: str, final: KnownLoss) -> dict[int, str]:
    """Return the manifests of models that may be better than the final one, by round.

    One is that above which the newest known losses rose most. Their errors do not count, since the caller evaluates the
    models again. The other has the lowest loss, if the ``final`` one is clearly above that.
    """
    with database.transaction() as session:
        rows = checkpoints_repository.checkpoints(session, job_id)
        known = [one for one in rows if one.round >= _after_warmup(spec) and one.validation_loss is not None]
        if not known:
            return {}
        losses = _unit_losses(session, spec, job_id)
        newest = _by_evaluator(known[-1], losses)
        rises = [rise(_by_evaluator(one, losses), newest) for one in known]
        lowest = min(known, key=lambda one: loss_in(one).known())
        found = [known[rises.index(max(rises))]] if max(rises) > 0 else []
        found += [lowest] if is_worse(final, loss_in(lowest).known(), _ERRORS) else []
        return {one.round: one.cid for one in found}


def _after_warmup(spec: TrainingSpec) -> int:
    """Return the round of the first checkpoint that is compared."""
    return spec.training.warmup_steps // spec.training.inner_steps + 1


def _unit_losses(
    session: Session, spec: TrainingSpec, job_id: str, checkpoints: Collection[str] | None = None
) -> dict[str, dict[int, KnownLoss]]:
    """Return the losses near the median that units state, by checkpoint and slot.

    Of fewer replicas than a quorum most could lie, so theirs do not count.
    """
    return {
        checkpoint: {slot: loss_of(one).known() for slot, one in near_median(records).items()}
        for checkpoint, records in units_repository.evaluations(session, job_id, checkpoints).items()
        if len(records) >= quorum(spec.replicas)
    }


def _by_evaluator(row: Checkpoint, losses: Mapping[str, Mapping[int, KnownLoss]]) -> Mapping[int, KnownLoss]:
    """Return a model's losses by slot; the market's is under its number of samples, negative."""
    return losses.get(row.cid) or {-(row.validation_samples or 0): loss_in(row).known()}
