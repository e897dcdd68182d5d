"""Moving a job on: whoever calls, whenever, does what is due and nothing twice.

One transaction that holds the job's lock fills vacant slots, offers the round's units to their nodes and sees whether
the round can be aggregated. Aggregation itself and the first checkpoint need storage and time; they run outside it.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from market.db.base import utc_now
from market.db.session import Database, wake_after_commit
from market.domain.auction import gross_ask
from market.domain.lifecycle import JobEvent, JobStatus, UnitStatus
from market.domain.placement import Requirements
from market.jobs import pins, placing, publishing, renewals, repository, slot_states, state_pins
from market.jobs.checkpoints import UnusableDataset, build_initial_checkpoint
from market.jobs.lease_schemas import LeaseKind
from market.jobs.leases import create_lease, stop_training
from market.jobs.models import Checkpoint, Job, Slot, Unit
from market.jobs.moves import move_job
from market.jobs.units import settle_if_decided, unit_spec
from market.providers import service as providers
from market.settings import Settings
from market.storage.service import Storage
from training_gym import lateness
from training_gym.adaptation import choose_top_k
from training_gym.config import TrainingSpec

MAX_FAILURES = 3
"""How often one node may lose or fail the units of one round before it gets no more of that round."""

NO_CAPACITY_AFTER = 3
"""A round that cannot be closed fails its job after this many of the longest deadline."""

DEADLINE_ROUNDS = 4
"""So many rounds back, deliveries tell how long the next may take."""


@dataclass(frozen=True, slots=True)
class RoundState:
    """Where a round stands: ``open`` units are out with nodes, ``delivered`` ones are uploaded and not rejected.

    A quorum waits for the rest until ``deadline``; without a quorum the job is given up after ``patience``.
    """

    nodes: int
    open: int
    delivered: int
    started_at: datetime
    deadline: timedelta
    patience: timedelta

    @property
    def quorum(self) -> int:
        """Deliveries without which the round does not close."""
        return lateness.quorum(self.nodes)

    def can_close(self, now: datetime) -> bool:
        """Whether to aggregate now: a quorum is delivered, and nothing is worth waiting for any longer."""
        late = now >= self.started_at + self.deadline
        return self.delivered >= self.quorum and (self.open == 0 or late)

    def is_hopeless(self, now: datetime) -> bool:
        return self.delivered < self.quorum and now >= self.started_at + self.patience


def dispatch(database: Database, settings: Settings, storage: Storage, job_id: str) -> None:
    """Do whatever is due for a job, in any status; finds nothing to do when called again."""
    with database.transaction() as session:
        job = repository.job(session, job_id)
        starts = job is not None and job.status in (JobStatus.MATCHING, JobStatus.RUNNING)
        needs_checkpoint = starts and repository.checkpoint(session, job_id, 0) is None
    usable = True
    if needs_checkpoint:
        try:
            build_initial_checkpoint(database, storage, job_id)
        except UnusableDataset:
            usable = False
    with database.transaction() as session:
        job = repository.lock_job(session, job_id)
        if job is None:
            return
        if job.status == JobStatus.RUNNING and not usable:
            _fail(session, job, "dataset_unusable")
        if job.status == JobStatus.RUNNING:
            _advance_round(session, settings, job)
        if job.status in (JobStatus.RUNNING, JobStatus.VERIFYING):
            pins.request_pins(session, settings, job)
            state_pins.request_pins(session, settings, job)
        if job.status == JobStatus.RUNNING:
            publishing.request_uploads(session, settings, job)
        settle_if_decided(session, job, utc_now())


def due_jobs(database: Database) -> list[str]:
    """Ids of all jobs that :func:`dispatch` may have something to do for; the sweep calls it for each."""
    with database.transaction() as session:
        return repository.active_jobs(session)


def round_state(session: Session, job: Job, units: list[Unit], settings: Settings) -> RoundState:
    """The state of the job's current round, given all its units.

    Its deadline follows what the job's last rounds took, within what the settings allow.
    """
    longest = settings.round_deadline_seconds
    taken = repository.delivery_seconds(session, job.id, job.current_round - DEADLINE_ROUNDS)
    deadline = lateness.deadline(taken, settings.round_slack_seconds) if taken else longest
    return RoundState(
        nodes=job.nodes,
        open=sum(unit.status in repository.OPEN_UNIT for unit in units),
        delivered=sum(unit.status in repository.DELIVERED_UNIT for unit in units),
        started_at=job.round_started_at or job.created_at,
        deadline=timedelta(seconds=min(deadline, longest)),
        patience=timedelta(seconds=NO_CAPACITY_AFTER * longest),
    )


def _advance_round(session: Session, settings: Settings, job: Job) -> None:
    checkpoint = repository.checkpoint(session, job.id, job.current_round)
    if checkpoint is None:
        return
    units = repository.units_of_round(session, job.id, job.current_round)
    slots = repository.slots(session, job.id)
    if job.paused_at is not None:
        _rest(session, settings, job, slots, units)
        return
    done = {unit.slot for unit in units if unit.status not in (UnitStatus.LOST, UnitStatus.REJECTED)}
    # What a late unit hands on is what the slot's next one starts with, so that has to wait for it.
    done |= repository.late_slots(session, job.id, job.current_round)
    idle = [slot for slot in slots if slot.slot not in done]
    renewals.release_dearer(session, settings, job, idle)
    renewals.release_unfit(session, job, idle)
    _fill(session, settings, job, slots, [slot for slot in idle if slot.provider is None], units)
    for slot in slots:
        if slot.provider is not None and slot.slot not in done:
            units.append(_offer_unit(session, settings, job, slot, slot.provider, checkpoint))
    state, now = round_state(session, job, units, settings), utc_now()
    if state.can_close(now):
        wake_after_commit(session, "jobs.aggregate", job.id)
    elif state.is_hopeless(now):
        _fail(session, job, "no_capacity")


def _rest(session: Session, settings: Settings, job: Job, slots: list[Slot], units: list[Unit]) -> None:
    """A paused job gets no new units: what is out comes in, the round closes if it can, and then its nodes are free."""
    state = round_state(session, job, units, settings)
    if state.can_close(utc_now()):
        wake_after_commit(session, "jobs.aggregate", job.id)
    elif state.open == 0:
        for slot in slots:
            slot.provider = None


def _fail(session: Session, job: Job, reason: str) -> None:
    move_job(session, job, JobEvent.FAIL, reason=reason)
    stop_training(session, job, reason)


def _fill(
    session: Session, settings: Settings, job: Job, slots: list[Slot], vacant: list[Slot], units: list[Unit]
) -> None:
    """Put spare nodes that meet the job's requirements, of its class and within its price, into vacant slots.

    Those are taken that go best with the nodes that the job has. A node that failed in this round comes after those
    that did not, and not at all after ``MAX_FAILURES``.
    """
    if not vacant:
        return
    assert job.clearing_price_wei is not None  # set when the job was matched
    assert job.fee_bps is not None  # set when it was funded
    repository.lock_placement(session)
    busy = repository.slot_holders(session)
    failures = [unit.provider for unit in units if unit.status in (UnitStatus.LOST, UnitStatus.REJECTED)]
    requirements = Requirements.of(job.requirements)
    supply = providers.open_offers(session, job.tier_id, utc_now(), settings.heartbeat_timeout_seconds)
    spares = [
        offer
        for offer in supply
        if offer.environment_class == job.environment_class
        and requirements.accepts(offer)
        and offer.provider not in busy
        and gross_ask(offer.min_price_wei, job.fee_bps) <= job.clearing_price_wei
        and failures.count(offer.provider) < MAX_FAILURES
    ]
    for failed in range(MAX_FAILURES):
        equals = [spare for spare in spares if failures.count(spare.provider) == failed]
        left = [slot for slot in vacant if slot.provider is None]
        if equals and left:
            holders = [slot.provider for slot in slots if slot.provider is not None]
            best = placing.best_spares(session, job, len(left), equals, holders, supply)
            for slot, spare in zip(left, best, strict=False):
                slot.provider = spare


def _offer_unit(
    session: Session, settings: Settings, job: Job, slot: Slot, provider: str, checkpoint: Checkpoint
) -> Unit:
    start = slot_states.start_of(session, job, slot, provider)
    report = repository.last_report(session, job.id, provider) or {}
    unit = Unit(
        job_id=job.id,
        round=job.current_round,
        slot=slot.slot,
        provider=provider,
        status=UnitStatus.LEASED,
        start_checkpoint_cid=checkpoint.cid,
        start_slot_state_cid=start.cid,
        start_slot_state_digest=start.digest,
        start_restored_payload_cid=start.restored_payload_cid,
        top_k=choose_top_k(
            TrainingSpec.from_dict(job.spec), report.get("up_bytes_per_second"), report.get("compute_ms", 0) / 1000
        ),
    )
    session.add(unit)
    session.flush()
    task = {
        "job_id": job.id,
        "spec": unit_spec(job, unit).to_dict(),
        "round": unit.round,
        "slot": unit.slot,
        "checkpoint_cid": unit.start_checkpoint_cid,
        "slot_state_cid": unit.start_slot_state_cid,
        "restored_payload_cid": unit.start_restored_payload_cid,
        "environment": job.environment_class,
    }
    create_lease(
        session,
        kind=LeaseKind.TRAIN,
        holder=provider,
        job_id=job.id,
        task=task,
        unit_id=unit.id,
        seconds=settings.lease_seconds,
    )
    return unit
