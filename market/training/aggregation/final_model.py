"""The model of a job's last round, whose loss no later round sees."""

from collections.abc import Mapping
from dataclasses import replace

from sqlalchemy.orm import Session

from market.jobs.models import Job
from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.settings import Settings
from market.training.aggregation.rollback import best_round
from market.training.checkpoints import repository as checkpoints_repository
from market.training.checkpoints.service import StoredCheckpoint, load_parameters, model_loss
from market.training.evaluation.service import better_model, corrects_first_loss, first_loss, receipt_loss
from market.training.leases import evaluations
from market.training.replication.release import unpin_unneeded
from market.training.units.models import Unit
from training_gym.exchange.deadlines import quorum
from training_gym.spec.config import TrainingSpec
from zoo_protocol.verification.training_faults import FINAL_LOSS, KnownLoss, Rollback, is_worse, loss_fault


def evaluated_final_model(
    database: Database,
    settings: Settings,
    storage: Storage,
    job_id: str,
    spec: TrainingSpec,
    stored: StoredCheckpoint,
    losses: Mapping[int, KnownLoss],
) -> tuple[StoredCheckpoint, Rollback | None] | None:
    """Return a final model with its loss, and its rollback if any; None: a later call goes on.

    Verifiers' record may be false, and the known losses of other models are of few samples. So the market evaluates the
    final and the best model before a rollback.

    Args:
        losses: known ones of the job's checkpoints, by round.

    Raises:
        StorageError: storage failed. GymError: the dataset or the base model does not match its manifest.
    """
    loss = receipt_loss(database, settings, storage, job_id, spec, stored.cid, spec.training.rounds)
    # Units of an only round may have evaluated too few samples.
    first = None if losses else first_loss(database, settings, storage, job_id, spec)
    if loss is None or (first is None and not losses):  # verifiers evaluate a model
        return None
    known = [one for _, one in sorted(losses.items())] if first is None else [first.known()]
    spikes = loss_fault([*known, loss.known()]) is not None
    best = _best_if_worse(database, job_id, spec, losses, spikes)
    if best is None:
        return replace(stored, loss=loss), None
    if corrects_first_loss(database, settings, storage, job_id, spec):
        return None
    to, best_cid = best
    own, own_of_best = (
        model_loss(storage, settings, spec, load_parameters(storage, spec, cid), spec.training.rounds)
        for cid in (stored.cid, best_cid)
    )
    worse = is_worse(own.known(), own_of_best.known())
    return replace(stored, loss=own), Rollback(to, FINAL_LOSS) if worse else None


def _best_if_worse(
    database: Database, job_id: str, spec: TrainingSpec, losses: Mapping[int, KnownLoss], spikes: bool
) -> tuple[int, str] | None:
    """Return round and manifest of the best model if the final one may be worse."""
    with database.transaction() as session:
        newest = checkpoints_repository.checkpoint(session, job_id, max(losses, default=0))
        assert newest is not None
        best = better_model(session, spec, newest) if losses else None
        if best is None and spikes:
            best = checkpoints_repository.checkpoint(session, job_id, best_round(losses))
        return None if best is None else (best.round, best.cid)


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
