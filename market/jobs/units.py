"""Units as verification and settlement see them: facts to read, and the decisions that end a unit.

Every function works in the caller's unit of work. A unit is decided when it is verified, rejected or lost; when the
last unit of a job that no longer trains is decided, the job goes to settlement.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from market.db.base import utc_now
from market.db.session import wake_after_commit
from market.domain.lifecycle import JobEvent, JobStatus, UnitEvent, UnitStatus
from market.domain.money import unit_price
from market.domain.verification import COMPARABLE_SHARE
from market.jobs import checkpoint_repository, repository, window_repository
from market.jobs.models import Checkpoint, Job, Unit
from market.jobs.moves import move_job, move_unit
from training_gym.adaptation import with_top_k
from training_gym.config import TrainingSpec
from zoo_protocol.messages import UnitCommitment
from zoo_protocol.record import leaf_of

PIN_GRACE = timedelta(seconds=60)
"""How long a trained job waits for proofs that its checkpoints are pinned before it is settled without them."""


_TRAINS_NO_MORE = (
    JobStatus.VERIFYING,
    JobStatus.CANCELLED,
    JobStatus.EXPIRED,
    JobStatus.FAILED,
    JobStatus.DISPUTED,
)


@dataclass(frozen=True, slots=True)
class UnitFacts:
    """One unit, with what its job fixes; ``spec`` is the job's with the ``top_k`` that this unit was told.

    ``leaves`` and ``salt`` are private until the unit is decided.

    Fields from ``trace_root`` to ``leaves`` are empty for a unit that was lost before it was delivered.
    """

    id: int
    job_id: str
    round: int
    slot: int
    provider: str
    status: str
    reason: str | None
    start_checkpoint_cid: str
    start_slot_state_cid: str | None
    start_restored_payload_cid: str | None
    start_eager_payload_cid: str | None
    environment_class: str
    segments: int
    spec: dict[str, Any]
    top_k: int | None
    trace_root: str
    payload_hash: str
    commitment_signature: str
    payload_cid: str
    slot_state_cid: str
    salt: str
    leaves: list[str]
    window_id: int | None
    sampling_bps: int | None
    tolerated_segments: list[int]  # drawn, and passed by tolerance alone
    least_sampling_bps: int
    gross_wei: int  # what the payer pays for it, if it is verified

    @property
    def commitment(self) -> UnitCommitment:
        """What the provider signed, once there is a trace root."""
        return UnitCommitment(self.job_id, self.round, self.slot, self.provider, self.trace_root, self.payload_hash)


@dataclass(frozen=True, slots=True)
class AcknowledgementFacts:
    """The promise that the commitment with this ``leaf`` is in a window by ``include_by``."""

    leaf: str
    include_by: datetime
    signature: str


def unit_spec(job: Job, unit: Unit) -> TrainingSpec:
    """The job's specification with what this unit was told to send."""
    return with_top_k(TrainingSpec.from_dict(job.spec), unit.top_k)


def _spec_document(job: Job, unit: Unit) -> dict[str, Any]:
    """:func:`unit_spec` as JSON, without reading the job's anew for each of its units."""
    if unit.top_k is None:
        return job.spec
    return job.spec | {"training_config": job.spec["training_config"] | {"top_k": unit.top_k}}


def facts(job: Job, unit: Unit) -> UnitFacts:
    """The facts of ``unit`` of ``job``."""
    return UnitFacts(
        id=unit.id,
        job_id=unit.job_id,
        round=unit.round,
        slot=unit.slot,
        provider=unit.provider,
        status=unit.status,
        reason=unit.reason,
        start_checkpoint_cid=unit.start_checkpoint_cid,
        start_slot_state_cid=unit.start_slot_state_cid,
        start_restored_payload_cid=unit.start_restored_payload_cid,
        start_eager_payload_cid=unit.start_eager_payload_cid,
        environment_class=job.environment_class or "",
        segments=job.segments,
        spec=_spec_document(job, unit),
        top_k=unit.top_k,
        trace_root=unit.trace_root or "",
        payload_hash=unit.payload_hash or "",
        commitment_signature=unit.commitment_signature or "",
        payload_cid=unit.payload_cid or "",
        slot_state_cid=unit.slot_state_cid or "",
        salt=unit.salt or "",
        leaves=unit.leaves or [],
        window_id=unit.window_id,
        sampling_bps=unit.sampling_bps,
        tolerated_segments=unit.tolerated_segments or [],
        least_sampling_bps=job.sampling_bps,
        gross_wei=unit_price(job.clearing_price_wei or 0, job.unit_weight_us),
    )


def windowless_units(session: Session, limit: int) -> list[UnitFacts]:
    """Units in no window whose commitments are due to enter one, oldest first, locked; those that another transaction
    holds are skipped."""
    return [facts(job, unit) for job, unit in window_repository.lock_windowless_units(session, limit)]


def assign_window(session: Session, rates: Mapping[int, int | None], window_id: int) -> None:
    """Put units, locked by :func:`windowless_units`, into a window; their order gives their leaf's index.

    Args:
        rates: by unit id, the least rate in basis points at which its segments will be drawn; None: never.
    """
    units = repository.units_by_id(session, rates)
    for index, (unit_id, sampling_bps) in enumerate(rates.items()):
        unit = units[unit_id]
        unit.window_id, unit.window_index, unit.sampling_bps = window_id, index, sampling_bps


def window_units(session: Session, window_id: int) -> list[UnitFacts]:
    """The units of a window in the order of their leaves."""
    return [facts(job, unit) for job, unit in window_repository.units_of_window(session, window_id)]


def window_leaves(session: Session, window_id: int) -> list[bytes]:
    """The leaves of a window in their order."""
    return [leaf_of(commitment) for commitment in window_repository.commitments_of_window(session, window_id)]


def acknowledged_unit(session: Session, leaf: str) -> tuple[AcknowledgementFacts, UnitFacts] | None:
    """What was promised for a commitment, and its unit; None if no such commitment was acknowledged."""
    found = window_repository.acknowledged_unit(session, leaf)
    if found is None:
        return None
    given, job, unit = found
    return AcknowledgementFacts(given.leaf, given.include_by, given.signature), facts(job, unit)


def outstanding_acknowledgements(session: Session, open_windows: Collection[int]) -> tuple[int, int]:
    """(all, late) acknowledged commitments whose inclusion is not final; ``open_windows``: those not final on chain."""
    return window_repository.count_outstanding(session, open_windows, utc_now())


def unit_facts(session: Session, unit_id: int) -> UnitFacts:
    """Facts of one unit.

    Raises:
        LookupError: if there is no such unit.
    """
    found = repository.unit(session, unit_id)
    if found is None:
        raise LookupError(f"no unit {unit_id}")
    return facts(*found)


def job_units(session: Session, job_id: str) -> list[UnitFacts]:
    """All units of a job in the order (round, slot, id), lost ones too."""
    job = repository.job(session, job_id)
    return [] if job is None else [facts(job, unit) for unit in repository.units_of_job(session, job_id)]


def clean_units_of(session: Session, unit: UnitFacts, since: datetime | None = None) -> int:
    """Number of its provider's units over all jobs that were verified and speak for it, being comparable to this one
    (:data:`market.domain.verification.COMPARABLE_SHARE`); of those decided after ``since`` if given."""
    return repository.count_verified_units(session, unit.provider, unit.gross_wei // COMPARABLE_SHARE, since)


def units_at(session: Session, job_id: str, round_: int, slot: int) -> list[UnitFacts]:
    """All attempts at a place in the order of their ids, lost ones too."""
    job = repository.job(session, job_id)
    found = [] if job is None else repository.units_of_round(session, job_id, round_)
    return [facts(job, unit) for unit in found if job is not None and unit.slot == slot]


def unverified_units_of(session: Session, provider: str) -> list[int]:
    """Ids of the provider's units that were delivered and are not decided."""
    return repository.unverified_units(session, provider)


def decided_before(session: Session, unit_ids: Collection[int], then: datetime) -> set[int]:
    """Those of the units that were decided before then."""
    units = repository.units_by_id(session, unit_ids).values()
    return {unit.id for unit in units if unit.decided_at is not None and unit.decided_at < then}


def mark_checking(session: Session, unit_id: int, sampling_bps: int) -> None:
    """The unit's segments were drawn at ``sampling_bps`` basis points. Does nothing to one already drawn or decided."""
    _, unit = _lock(session, unit_id)
    if unit.status == UnitStatus.UPLOADED:
        unit.sampling_bps = sampling_bps
        move_unit(session, unit, UnitEvent.DRAW, at=utc_now())


def pass_unit(session: Session, unit_id: int, tolerated: Sequence[int] = ()) -> None:
    """The unit stands and will be paid; ``tolerated``: segments that passed by tolerance, in another class alone.

    Does nothing to a unit already decided.
    """
    job, unit = _lock(session, unit_id)
    if unit.status == UnitStatus.CHECKING:
        unit.tolerated_segments = sorted(tolerated)
        move_unit(session, unit, UnitEvent.PASS, at=utc_now())
        settle_if_decided(session, job, utc_now())


def reject_unit(session: Session, unit_id: int, reason: str) -> None:
    """The unit is not paid, for ``reason`` (stable code). Does nothing to a unit already decided."""
    job, unit = _lock(session, unit_id)
    if unit.status in (UnitStatus.UPLOADED, UnitStatus.CHECKING, UnitStatus.DISPUTED):
        move_unit(session, unit, UnitEvent.REJECT, at=utc_now(), reason=reason)
        if job.status == JobStatus.RUNNING and unit.round >= job.current_round:
            wake_after_commit(session, "jobs.dispatch", job.id)  # the round is open: somebody else may do it over
        settle_if_decided(session, job, utc_now())


def dispute_unit(session: Session, unit_id: int, dispute_id: str) -> None:
    """The unit is to be judged on chain, in this dispute. Its payload stays out of the aggregate if others are in."""
    _, unit = _lock(session, unit_id)
    unit.dispute_id = dispute_id
    move_unit(session, unit, UnitEvent.DISPUTE, at=utc_now())


def acquit_unit(session: Session, unit_id: int) -> None:
    """The dispute found for its provider; the unit is checked like any other, to the end."""
    _, unit = _lock(session, unit_id)
    move_unit(session, unit, UnitEvent.ACQUIT, at=utc_now())


def _lock(session: Session, unit_id: int) -> tuple[Job, Unit]:
    locked = repository.lock_unit(session, unit_id)
    if locked is None:
        raise LookupError(f"no unit {unit_id}")
    return locked


def settle_if_decided(session: Session, job: Job, now: datetime) -> None:
    """Send a job that no longer trains to settlement once all its units are decided. The caller has locked the job."""
    if job.status not in _TRAINS_NO_MORE or repository.has_undecided_units(session, job.id):
        return
    if job.status == JobStatus.VERIFYING:
        waited = job.trained_at is not None and now >= job.trained_at + PIN_GRACE
        if missing_pins(session, job) and not waited:
            return
        move_job(session, job, JobEvent.UNITS_DECIDED, reason="completed")
    wake_after_commit(session, "settlement.settle")


def is_kept(job: Job, checkpoint: Checkpoint) -> bool:
    """Whether nodes keep it: every ``checkpoint_interval``-th one, the initial and the final one among them."""
    return checkpoint.round % job.checkpoint_interval == 0 or checkpoint.round == job.rounds


def missing_pins(session: Session, job: Job) -> Mapping[int, int]:
    """By id of each checkpoint that is to be kept by ``redundancy`` nodes: how many more proofs it needs."""
    holders = checkpoint_repository.pins_of_job(session, job.id)
    return {
        checkpoint.id: lacking
        for checkpoint in checkpoint_repository.checkpoints(session, job.id)
        if is_kept(job, checkpoint)
        if (lacking := job.redundancy - len(holders.get(checkpoint.id, []))) > 0
    }
