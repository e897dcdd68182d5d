"""Checkpoints: their files in storage, rows and proven copies.

Calls with a storage are slow: no session may be open.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from sqlalchemy.orm import Session

from market.jobs.models import Job
from market.platform.db.rows import from_row
from market.platform.events.service import emit
from market.platform.storage.client import Storage
from market.settings import Settings
from market.training.checkpoints import repository
from market.training.checkpoints.base_models import frozen_base
from market.training.checkpoints.models import Checkpoint
from training_gym.aggregate.outer_step import OuterState, initial_outer_state, read_outer_state
from training_gym.data.dataset import DatasetManifest, Split, data_of, read_split
from training_gym.evaluate.extent import evaluation_limit
from training_gym.evaluate.sums import LossSums
from training_gym.model.layout import Arrays
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import SpecError
from training_gym.spec.manifests import MAX_MANIFEST_BYTES
from training_gym.units.checkpoint import CheckpointManifest, read_state, state_pieces
from zoo_protocol.payments.job_record import MAX_ROLLBACKS, CheckpointRecord
from zoo_protocol.verification.training_faults import FAULTS, FINAL_LOSS, LARGEST_LOSS, KnownLoss, Rollback, stated_loss

PIN_GRACE = timedelta(seconds=60)
"""A trained job waits this long for pin proofs of its checkpoints; then it is settled without them."""

_FILE_ALLOWANCE = 1 << 20


class ModelLoss(NamedTuple):
    """Held-out loss, its standard error and its number of samples.

    Loss and error are in nats per token with six decimal places. All are None if not known yet, and so is the error of
    a single sample.
    """

    validation_loss: str | None = None
    validation_error: str | None = None
    validation_samples: int | None = None

    def known(self) -> KnownLoss:
        """Return the loss and its error as numbers; the loss is known."""
        assert self.validation_loss is not None
        return KnownLoss.of(self.validation_loss, self.validation_error)


_UNKNOWN = ModelLoss()


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """Checkpoint with all files in storage, and its loss."""

    cid: str
    manifest: CheckpointManifest
    loss: ModelLoss = _UNKNOWN

    @property
    def files(self) -> list[str]:
        """CIDs of its files without replica states, in the order of a pin proof."""
        made = self.manifest
        files = (self.cid, made.model, made.outer_state, made.update, made.aggregation)
        return [cid for cid in files if cid is not None]


def state_bytes(spec: TrainingSpec) -> int:
    """Return the maximum bytes of a model file."""
    return 4 * spec.num_parameters() + _FILE_ALLOWANCE


def outer_state_bytes(spec: TrainingSpec) -> int:
    """Return the maximum bytes of an outer state file: three vectors of the model's size."""
    return 3 * state_bytes(spec)


def store_checkpoint(
    storage: Storage,
    spec: TrainingSpec,
    *,
    job_id: str,
    round_: int,
    parent: str | None,
    parameters: Arrays,
    slot_states: dict[int, str],
    outer_state: Sequence[bytes | memoryview] | None = None,
    update: bytes = b"",
    aggregation: str | None = None,
    pin: bool = True,
) -> StoredCheckpoint:
    """Store the model after ``round_`` rounds; equal arguments give an equal CID.

    Args:
        slot_states: CID of the next start state by slot.
        outer_state: input file of the next outer step in pieces; None before the first.
        update: encoded outer step from the parent's parameters; empty if nodes fetch the whole model.
        aggregation: CID of the record of the aggregated payloads; None for the initial checkpoint.
        pin: pin each file itself.

    Raises:
        StorageError: storage failed.
    """
    model = storage.put(state_pieces(parameters), max_bytes=state_bytes(spec), pin=pin)
    state = None if outer_state is None else storage.put(outer_state, max_bytes=outer_state_bytes(spec), pin=pin).cid
    manifest = CheckpointManifest(
        job_id=job_id,
        round=round_,
        parent=parent,
        model=model.cid,
        outer_state=state,
        update=storage.put(update, max_bytes=state_bytes(spec), pin=pin).cid if update else None,
        aggregation=aggregation,
        slot_states={str(slot): cid for slot, cid in slot_states.items()},
        data_cursor=round_ * spec.training.inner_steps,
        spec_hash=spec.spec_hash(),
    )
    return StoredCheckpoint(storage.put(manifest.to_bytes(), max_bytes=MAX_MANIFEST_BYTES, pin=pin).cid, manifest)


def load_parameters(storage: Storage, spec: TrainingSpec, manifest_cid: str) -> Arrays:
    """Return a checkpoint's parameters. Raises StorageError, GymError (unfit for ``spec``)."""
    manifest = _load_manifest(storage, manifest_cid)
    return read_state(spec, storage.open_stream(manifest.model, max_bytes=state_bytes(spec)))


def load_outer(storage: Storage, spec: TrainingSpec, manifest_cid: str) -> OuterState:
    """Return the outer state after a checkpoint. Raises like :func:`load_parameters`."""
    cid = _load_manifest(storage, manifest_cid).outer_state
    if cid is None:
        return initial_outer_state(spec)
    return read_outer_state(spec, storage.open_stream(cid, max_bytes=outer_state_bytes(spec)))


def _load_manifest(storage: Storage, cid: str) -> CheckpointManifest:
    return CheckpointManifest.from_bytes(storage.get(cid, max_bytes=MAX_MANIFEST_BYTES))


def record_checkpoint(session: Session, stored: StoredCheckpoint, rollback: Rollback | None = None) -> None:
    manifest = stored.manifest
    job = session.get_one(Job, manifest.job_id)
    session.add(
        Checkpoint(
            job_id=manifest.job_id,
            round=manifest.round,
            cid=stored.cid,
            model_cid=manifest.model,
            file_cids=stored.files,
            rolled_back_to=None if rollback is None else rollback.to,
            rollback_reason=None if rollback is None else rollback.reason,
            **stored.loss._asdict(),
            origin_loss=None if manifest.round else _origin_loss(session, TrainingSpec.from_dict(job.spec)),
        )
    )
    session.flush()
    seen = {"round": manifest.round, "cid": stored.cid, **stored.loss._asdict()}
    emit(session, manifest.job_id, "checkpoint", seen)


def _origin_loss(session: Session, spec: TrainingSpec) -> str | None:
    """Return the first loss of the jobs that led to the start, if these read the same data.

    It limits spikes, as in one job: fresh moments can raise a low loss at first. Verifiers' loss may be false.
    """
    start = spec.start_checkpoint or spec.start_model
    before = None if start is None else repository.oldest_with_file(session, start)
    if before is None:
        return None
    try:
        earlier = TrainingSpec.from_dict(session.get_one(Job, before.job_id).spec)
    except SpecError:  # of an earlier release
        return None
    first = repository.checkpoint(session, before.job_id, 0)
    assert first is not None  # others follow it
    own = None if first.is_stated else first.validation_loss
    return first.origin_loss or own if data_of(earlier) == data_of(spec) else None


def model_loss(storage: Storage, settings: Settings, spec: TrainingSpec, parameters: Arrays, round_: int) -> ModelLoss:
    """Return the held-out loss of the model before ``round_``.

    Raises:
        StorageError: storage failed, or lost the dataset or the base model.
        GymError: the dataset or the base model does not match its manifest.
    """
    from training_gym.evaluate.loss import evaluate  # imports torch, which only workers load

    validation, base = validation_split(storage, spec), frozen_base(storage, settings, spec)
    found = evaluate(spec, parameters, validation, evaluation_limit(spec, round_), base=base)
    return loss_of(found)


def loss_of(found: LossSums) -> ModelLoss:
    """Return the loss of evaluated samples."""
    error = f"{min(found.error, LARGEST_LOSS):.6f}" if math.isfinite(found.error) else None
    return ModelLoss(stated_loss(found.loss), error, found.samples)


def loss_in(row: Checkpoint) -> ModelLoss:
    """Return the recorded loss of a checkpoint."""
    return ModelLoss(row.validation_loss, row.validation_error, row.validation_samples)


def validation_split(storage: Storage, spec: TrainingSpec) -> Split:
    """Return the validation split in memory; raises as :func:`model_loss`."""
    manifest = dataset_manifest(storage, spec)
    return read_split(
        spec, manifest, manifest.validation, lambda shard: storage.get(shard.cid, max_bytes=manifest.size_of(shard))
    )


def dataset_manifest(storage: Storage, spec: TrainingSpec) -> DatasetManifest:
    """Return the dataset's manifest. Raises StorageError, GymError."""
    return DatasetManifest.from_bytes(storage.get(spec.dataset, max_bytes=MAX_MANIFEST_BYTES))


def checkpoints_of(session: Session, job_id: str) -> list[CheckpointRecord]:
    """Return a job's checkpoints with their proven holders, ascending."""
    pins = repository.pins_of_job(session, job_id)
    rows = repository.checkpoints(session, job_id)
    return [from_row(CheckpointRecord, row, pins=pins.get(row.id, [])) for row in rows]


def rollbacks(session: Session, job_id: str) -> dict[int, Rollback]:
    """Return the job's rollbacks by the round of their checkpoint, ascending."""
    rows = repository.rolled_back(session, job_id)
    return {row.round: Rollback(row.rolled_back_to or 0, row.rollback_reason or "") for row in rows}


def rollback_sentences(session: Session, job_id: str) -> list[str]:
    """Return a sentence on each of the job's rollbacks. That of a final model has no number."""
    found = []
    for number, (round_, one) in enumerate(rollbacks(session, job_id).items(), 1):
        start = "Round" if one.reason == FINAL_LOSS else f"Rollback {number} of at most {MAX_ROLLBACKS}: round"
        reason = f"{FAULTS[one.reason]} ({one.reason})"
        found.append(f"{start} {round_} repeats the model after round {one.to}, because {reason}.")
    return found


def kept_checkpoints(session: Session, job: Job) -> list[Checkpoint]:
    """Return the checkpoints to keep: by interval, the last, and those that rollbacks repeat."""
    found = repository.checkpoints(session, job.id)
    best = {one.rolled_back_to for one in found}
    return [one for one in found if one.round % job.checkpoint_interval == 0 or one.round in {job.rounds, *best}]


def lacks_pins(session: Session, job: Job) -> bool:
    """Return True if a kept checkpoint has fewer proven holders than ``redundancy``."""
    holders = repository.pins_of_job(session, job.id)
    return any(len(holders.get(one.id, [])) < job.redundancy for one in kept_checkpoints(session, job))
