"""Validation losses of checkpoints, and outlier flags of payloads.

Both are computed in parallel with later rounds, and settlement records the known losses. Only the last round waits for
one, that of the final model: the receipt contains it.

A flag only raises the provider's sampling rate. Payloads are compared for the newest round alone. All units of a round
are flagged if its model is worse than a recent one. The rules of aggregation cannot see that, only directions.
Exclusion from an aggregation is decided separately, by reproducible rules (:mod:`training_gym.aggregate.robust`), and
counts as a flag.
"""

from collections.abc import Mapping
from contextlib import suppress

from sqlalchemy.orm import Session

from market.domain.lifecycle import JobStatus
from market.domain.verification.sampling import FLAGGED_UNITS
from market.jobs import repository as jobs_repository
from market.jobs.models import Job
from market.platform.db.session import Database, enqueue_after_commit
from market.platform.events.service import emit
from market.platform.storage.client import Storage
from market.platform.storage.errors import BlobCorrupt, BlobNotFound
from market.settings import Settings
from market.training.checkpoints import repository as checkpoints_repository
from market.training.checkpoints.models import Checkpoint
from market.training.checkpoints.service import (
    ModelLoss,
    dataset_manifest,
    load_parameters,
    loss_in,
    loss_of,
    model_loss,
)
from market.training.evaluation.comparison import flag_if_worse
from market.training.leases import evaluations
from market.training.units import repository as units_repository
from market.training.units.facts import UnitSummary
from training_gym.compress.link_adaptation import decode_adapted
from training_gym.compress.payload_format import payload_size
from training_gym.data.dataset import validation_size
from training_gym.evaluate.extent import evaluated_every, is_by_verifiers, is_enough_of_first
from training_gym.evaluate.sums import pooled
from training_gym.exchange.deadlines import quorum
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import PayloadError
from training_gym.verify.consistency import measure, outlier_flags
from zoo_protocol.verification.rules import COMPARABLE_SHARE

MAX_VALUES = 1 << 27
"""Limit of payloads times parameters of an examined round, all of which are in memory at once."""

EXCLUDED_FOR = ("norm_outlier", "near_copy", "krum_outlier", "opposed")
"""Verdicts of :mod:`training_gym.aggregate.robust` that concern the node, not time or format."""


def receipt_loss(
    database: Database,
    settings: Settings,
    storage: Storage,
    job_id: str,
    spec: TrainingSpec,
    checkpoint_cid: str,
    round_: int,
) -> ModelLoss | None:
    """Return the loss of the first or the final model; None while verifiers evaluate it.

    The market evaluates those of small and of ended jobs, and those on which no two verifiers agree.

    Raises:
        StorageError: storage failed. GymError: the dataset or the base model does not match its manifest.
    """
    size = validation_size(spec, dataset_manifest(storage, spec))
    if is_by_verifiers(spec, size):
        with database.transaction() as session:
            job = jobs_repository.lock_job(session, job_id)
            if (found := evaluations.agreed_record(session, job_id, checkpoint_cid)) is not None:
                return loss_of(found)
            if (
                job is not None
                and job.status == JobStatus.RUNNING
                and evaluations.request(session, settings, job, checkpoint_cid, size)
            ):
                return None
    parameters = load_parameters(storage, spec, checkpoint_cid)
    return model_loss(storage, settings, spec, parameters, round_)


def jobs_to_validate(database: Database) -> list[str]:
    """Return the ids of jobs that :func:`validate` may have work for."""
    with database.transaction() as session:
        return list(checkpoints_repository.jobs_without_a_loss(session))


def validate(database: Database, settings: Settings, storage: Storage, job_id: str) -> None:
    """Compute missing losses, then examine the last round; one worker at a time.

    The first model's is first, since no spike is one without it. The others follow, newest first.

    Raises:
        StorageError: storage failed; the sweep retries.
    """
    with database.advisory_lock(f"validate:{job_id}") as alone:
        is_first_asked = False
        while alone and (due := _unknown(database, job_id, without_first=is_first_asked)) is not None:
            spec, checkpoint = due
            if checkpoint.round == 0:
                first_loss(database, settings, storage, job_id, spec)
                is_first_asked = True  # verifiers may take their time
                continue
            parameters = load_parameters(storage, spec, checkpoint.cid)
            loss = model_loss(storage, settings, spec, parameters, checkpoint.round)
            with database.transaction() as session:
                jobs_repository.lock_job(session, job_id)
                row = session.get_one(Checkpoint, checkpoint.id)
                if row.validation_loss is None:  # units may have evaluated it since
                    _record(session, row, loss)
                    flag_if_worse(session, spec, row)
        if alone:
            examine(database, storage, job_id)


def _unknown(database: Database, job_id: str, *, without_first: bool) -> tuple[TrainingSpec, Checkpoint] | None:
    """Return the next checkpoint that the market evaluates."""
    with database.transaction() as session:
        rows = checkpoints_repository.checkpoints(session, job_id)
        job = jobs_repository.job(session, job_id)
        if job is None or not rows or job.status in jobs_repository.TERMINAL_STATUSES:
            return None
        spec = TrainingSpec.from_dict(job.spec)
        trains, every = job.status == JobStatus.RUNNING and job.paused_at is None, evaluated_every(spec)
        unknown = [row for row in rows if row.round % every == 0 or (row is rows[-1] and not trains)]
        unknown = [row for row in unknown if row.validation_loss is None]
        if spec.validation_samples and trains:  # units of these rounds evaluate their checkpoints
            unknown = [row for row in unknown if row.round < job.current_round - spec.training.round_delay]
        if without_first:
            unknown = [row for row in unknown if row.round]
        return (spec, unknown[-1 if unknown[0].round else 0]) if unknown else None


def take_unit_losses(session: Session, job: Job, spec: TrainingSpec) -> None:
    """Set losses of checkpoints from the records of a quorum, at the end of a round.

    With ``round_delay`` most units start from the checkpoint before their round's own. The market evaluates one of
    fewer replicas, or without a record that counts, and the first model also if the records are too few.
    """
    oldest = max(0, job.current_round - spec.training.round_delay)
    newest = job.current_round if job.current_round + 1 == job.rounds else oldest
    for row in checkpoints_repository.unknown_between(session, job.id, oldest, newest):
        records = units_repository.evaluations(session, job.id, [row.cid]).get(row.cid, {})
        found = pooled(list(records.values())) if len(records) >= quorum(job.nodes) else None
        if found is None or (row.round == 0 and not is_enough_of_first(spec, found)):
            continue
        _record(session, row, loss_of(found))
        flag_if_worse(session, spec, row)


def first_loss(
    database: Database, settings: Settings, storage: Storage, job_id: str, spec: TrainingSpec
) -> ModelLoss | None:
    """Return the first model's loss, and record an unknown one; None: verifiers evaluate it.

    Raises as :func:`receipt_loss`.
    """
    with database.transaction() as session:
        row = checkpoints_repository.checkpoint(session, job_id, 0)
        assert row is not None  # later checkpoints follow it
        if row.validation_loss is not None:
            return loss_in(row)
    loss = receipt_loss(database, settings, storage, job_id, spec, row.cid, 0)
    if loss is not None:
        with database.transaction() as session:
            evaluations.end_open(session, job_id, row.cid)
            row = session.get_one(Checkpoint, row.id)
            if row.validation_loss is not None:  # units or another worker were faster
                return loss_in(row)
            row.is_stated = evaluations.agreed_record(session, job_id, row.cid) is not None
            _record(session, row, loss)
    return loss


def corrects_first_loss(
    database: Database, settings: Settings, storage: Storage, job_id: str, spec: TrainingSpec
) -> bool:
    """Evaluate a first model as verifiers did; return True if another loss is recorded now.

    A false first loss makes spikes of right ones, or the first model the best. So a rollback needs the market's own.
    Raises as :func:`receipt_loss`.
    """
    with database.transaction() as session:
        row = checkpoints_repository.checkpoint(session, job_id, 0)
        if row is None or not row.is_stated:
            return False
    own = model_loss(storage, settings, spec, load_parameters(storage, spec, row.cid), 0)
    with database.transaction() as session:
        row = session.get_one(Checkpoint, row.id)
        row.is_stated = False
        if own == loss_in(row):
            return False
        _record(session, row, own)
        enqueue_after_commit(session, "jobs.dispatch", job_id)
    return True


def _record(session: Session, row: Checkpoint, loss: ModelLoss) -> None:
    row.validation_loss, row.validation_error, row.validation_samples = loss
    emit(session, row.job_id, "validation", {"round": row.round, "cid": row.cid, **loss._asdict()})


def has_outlier_flag(session: Session, unit: UnitSummary) -> bool:
    """Return True if one of the provider's newest comparable units has an outlier flag."""
    newest = units_repository.newest_outlier_flags(
        session, unit.provider, unit.gross_wei // COMPARABLE_SHARE, FLAGGED_UNITS
    )
    return any(found or reason in EXCLUDED_FOR for found, reason in newest)


def examine(database: Database, storage: Storage, job_id: str) -> None:
    """Compare the last closed round's payloads once, without late ones. Raises StorageError."""
    with database.transaction() as session:
        job = jobs_repository.job(session, job_id)
        if job is None or job.current_round == 0:
            return
        spec = TrainingSpec.from_dict(job.spec)
        units = units_repository.unexamined_units(session, job_id, job.current_round - 1)
    if not units or len(units) * spec.num_parameters() > MAX_VALUES:
        return
    payloads = {}
    for unit in units:
        with suppress(BlobNotFound, BlobCorrupt):  # lost by storage, not by the node
            payloads[unit.slot] = storage.get(unit.payload_cid or "", max_bytes=payload_size(spec))
    found = _outlier_flags(spec, payloads)
    with database.transaction() as session:
        jobs_repository.lock_job(session, job_id)
        rows = units_repository.units_by_id(session, [unit.id for unit in units])
        for unit in units:
            rows[unit.id].doubts = [*found.get(unit.slot, []), *(rows[unit.id].doubts or [])]


def _outlier_flags(spec: TrainingSpec, payloads: Mapping[int, bytes]) -> dict[int, list[str]]:
    """Return flag codes by slot."""
    decoded = {}
    for slot, data in payloads.items():
        try:
            decoded[slot] = decode_adapted(spec, data)
        except PayloadError:  # excluded from the aggregation with its own code
            continue
    return {slot: outlier_flags(one) for slot, one in measure(spec, decoded).items()}
