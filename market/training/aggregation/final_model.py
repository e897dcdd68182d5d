"""The model of a job's last round, whose loss no later round sees."""

from collections.abc import Mapping

from sqlalchemy.orm import Session

from market.jobs.models import Job
from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.settings import Settings
from market.training.aggregation.rollback import best_round, final_rollback
from market.training.checkpoints import repository as checkpoints_repository
from market.training.checkpoints.service import (
    ModelLoss,
    StoredCheckpoint,
    dataset_manifest,
    load_parameters,
    model_loss,
)
from market.training.evaluation.comparison import better_models
from market.training.evaluation.service import corrects_first_loss, first_loss, receipt_loss
from market.training.leases import evaluations
from market.training.replication.release import unpin_unneeded
from market.training.units.models import Unit
from training_gym.data.dataset import validation_size
from training_gym.evaluate.extent import is_first_by_market
from training_gym.exchange.deadlines import quorum
from training_gym.spec.config import TrainingSpec
from zoo_protocol.verification.training_faults import KnownLoss, Rollback, loss_fault


def evaluated_final_model(
    database: Database,
    settings: Settings,
    storage: Storage,
    job_id: str,
    spec: TrainingSpec,
    stored: StoredCheckpoint,
    losses: Mapping[int, KnownLoss],
) -> tuple[ModelLoss, Rollback | None] | None:
    """Return the loss of the model to deliver, and a rollback to it; None: a later call goes on.

    Verifiers' record may be false, and the known losses of other models are of few samples. So the market evaluates the
    final model and those that may be better before a rollback.

    Args:
        stored: checkpoint of the final model.
        losses: known ones of the job's checkpoints, by round.

    Raises:
        StorageError: storage failed. GymError: the dataset or the base model does not match its manifest.
    """
    loss = receipt_loss(database, settings, storage, job_id, spec, stored.cid, spec.training.rounds)
    first = _due_first_loss(database, settings, storage, job_id, spec, losses)
    if first is None and not losses:  # units of an only round may have evaluated too few samples
        first = first_loss(database, settings, storage, job_id, spec)
    if loss is None or (first is None and not losses):  # verifiers evaluate a model
        return None
    known = [*([] if first is None else [first.known()]), *(one for _, one in sorted(losses.items()))]
    compared = better_models(database, spec, job_id, loss.known())
    cids = dict(compared)
    if loss_fault([*known, loss.known()]) is not None:
        cids |= _best_model(database, job_id, losses)
    if not cids:
        return loss, None
    if corrects_first_loss(database, settings, storage, job_id, spec):
        return None

    def evaluate(cid: str) -> ModelLoss:
        return model_loss(storage, settings, spec, load_parameters(storage, spec, cid), spec.training.rounds)

    own, found = evaluate(stored.cid), {round_: evaluate(cid) for round_, cid in cids.items()}
    rollback = final_rollback(known[0], {round_: one.known() for round_, one in found.items()}, compared, own.known())
    return own if rollback is None else found[rollback.to], rollback


def repeated_loss(
    database: Database,
    settings: Settings,
    storage: Storage,
    job_id: str,
    spec: TrainingSpec,
    stored: StoredCheckpoint,
    losses: Mapping[int, KnownLoss],
) -> ModelLoss:
    """Return the loss of a final model that repeats an earlier one, not for its own loss.

    Raises as :func:`evaluated_final_model`.
    """
    _due_first_loss(database, settings, storage, job_id, spec, losses)
    return model_loss(storage, settings, spec, load_parameters(storage, spec, stored.cid), spec.training.rounds)


def _due_first_loss(
    database: Database,
    settings: Settings,
    storage: Storage,
    job_id: str,
    spec: TrainingSpec,
    losses: Mapping[int, KnownLoss],
) -> ModelLoss | None:
    """Return the first model's loss if it is unknown and the market's to evaluate.

    A receipt states it, and a short job can end before the market has done it. Raises as :func:`evaluated_final_model`.
    """
    size = validation_size(spec, dataset_manifest(storage, spec))
    is_due = 0 not in losses and is_first_by_market(spec, size)
    return first_loss(database, settings, storage, job_id, spec) if is_due else None


def _best_model(database: Database, job_id: str, losses: Mapping[int, KnownLoss]) -> dict[int, str]:
    with database.transaction() as session:
        best = checkpoints_repository.checkpoint(session, job_id, best_round(losses))
        assert best is not None  # it has a loss, or is the first
        return {best.round: best.cid}


def evaluated_units(session: Session, job: Job, units: list[Unit]) -> list[Unit]:
    """Return the units of the final model that verifiers evaluate, or all ``units``.

    One that was uploaded since they were asked would make another model, with other evaluations.
    """
    asked_at = evaluations.final_asked_at(session, job.id)
    early = [unit for unit in units if asked_at is None or unit.uploaded_at is None or unit.uploaded_at <= asked_at]
    return early if len(early) >= quorum(job.nodes) else units


def release_model(database: Database, storage: Storage, job_id: str, spoiled: StoredCheckpoint) -> None:
    """Unpin the files of a final model that becomes no checkpoint; the next call stores them."""
    with database.transaction() as session:
        kept = {cid for one in checkpoints_repository.checkpoints(session, job_id) for cid in one.file_cids}
    unpin_unneeded(database, storage, job_id, set(spoiled.files) - kept)
