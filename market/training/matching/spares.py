"""Changes of a running job's nodes: removal of unsuitable ones, and hot spares.

A job's price is fixed at its match, so it cannot exceed the escrow. A provider that raises its ask works on at the old
price for the notice period. From the next round on, another node from the book fills its replica at the job's price.

A node that is jailed, unbonds its stake or fails the requirements (attestation ended, reliability fell) is replaced in
the same way without notice. So is one whose probe differs from most, or that is too slow, while a quorum has other
nodes: its units would end after their rounds, unpaid. A job can last longer than unbonding.

A hot spare is a free node that can take over a replica. It fetches the job's data and each of its checkpoints, by
``follow`` leases. It is neither reserved nor paid, but comes first when a replica becomes vacant. Training does not
wait for these leases, and their results are claims: a node that completes one without the files only begins later.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy.orm import Session

from market.domain.auctions.clearing import gross_ask
from market.domain.lifecycle import LeaseEvent, LeaseStatus, UnitStatus
from market.domain.network import NETWORKS
from market.domain.nodes.placement import Requirements
from market.jobs import repository as jobs_repository
from market.jobs.models import Job, Slot
from market.platform.db.base import utc_now
from market.platform.db.session import database_now
from market.providers import service as providers
from market.providers.service import Offer
from market.settings import Settings
from market.training.checkpoints.models import Checkpoint
from market.training.leases import repository as leases_repository
from market.training.leases.schemas import LeaseKind
from market.training.leases.service import abandon, create_lease
from market.training.matching import assignment
from market.training.units import repository as units_repository
from market.training.units.models import Unit
from market.training.units.probes import dissenting_nodes
from training_gym.exchange.deadlines import quorum

MAX_FAILURES = 3
"""A node that lost or failed this many units of a round gets no more of that round."""

SLOW_UNITS = 2
"""A node is slow if so many of its newest units missed the ends of their rounds."""
SLOW_ROUNDS = 8
"""Rounds after these units in which it gets none."""

SLOTS_PER_SPARE = 8

_PREFETCHING = (*leases_repository.OPEN_LEASE, LeaseStatus.DONE)


def drop_overpriced_nodes(session: Session, settings: Settings, job: Job, slots: Sequence[Slot]) -> None:
    """Vacate idle ``slots`` whose nodes' asks exceed the price since the notice period."""
    assert job.clearing_price_wei is not None  # set when the job was matched
    assert job.fee_bps is not None  # set when it was funded
    noticed_until = database_now(session) - timedelta(seconds=settings.price_notice_seconds)
    asks = providers.open_ask_prices(session, [slot.provider for slot in slots if slot.provider is not None])
    for slot in slots:
        price_wei, placed_at = asks.get(slot.provider or "", (0, noticed_until))
        if placed_at <= noticed_until and gross_ask(price_wei, job.fee_bps) > job.clearing_price_wei:
            slot.provider = None


def drop_ineligible_nodes(session: Session, settings: Settings, job: Job, slots: Sequence[Slot]) -> None:
    """Vacate idle ``slots`` of nodes that are jailed, not slashable, dissenting, slow or unfit."""
    requirements = Requirements.of(job.requirements)
    holders = [slot.provider for slot in slots if slot.provider is not None]
    nodes = providers.nodes_among(session, settings, holders, database_now(session))
    barred = providers.ineligible_providers(session, NETWORKS[settings.network], holders)
    barred |= dissenting_nodes(session, job.id) | _slow_nodes(session, job)
    for slot in slots:
        if slot.provider in barred or (slot.provider in nodes and not requirements.accepts(nodes[slot.provider])):
            slot.provider = None


def _slow_nodes(session: Session, job: Job) -> set[str]:
    """Return the job's slow nodes, none while the others are fewer than a quorum."""
    since = job.current_round - SLOW_ROUNDS - SLOW_UNITS + 1  # the first of these units, in the last round without any
    found = units_repository.slow_nodes(session, job.id, since, SLOW_UNITS)
    others = sum(slot.provider not in (None, *found) for slot in jobs_repository.slots(session, job.id))
    return found if others >= quorum(job.nodes) else set()


def replace_nodes(session: Session, settings: Settings, job: Job, units: Sequence[Unit], stuck: Sequence[Unit]) -> bool:
    """End as many uncommitted ``stuck`` units of a round, once, as other nodes can take.

    A node that hangs keeps its lease by heartbeats, and a round of few replicas has no quorum without it. Units are
    independent, so a quorum may need only some of their nodes replaced. The first slots come first.

    Args:
        units: all of the round.
        stuck: in slot order.

    Returns:
        True if a unit was ended, so that its replica gets another node.
    """
    waiting = [unit for unit in stuck if unit.status == UnitStatus.LEASED]
    is_repeated = any(unit.reason == units_repository.ROUND_CLOSED for unit in units)
    if not waiting or is_repeated:
        return False
    failures = _failures(units)
    suitable = _suitable(session, job, _supply(session, settings, job))
    free = sum(failures[one.provider] < MAX_FAILURES for one in suitable)
    for unit in waiting[:free]:
        for locked in leases_repository.lock_open_leases(session, job.id, unit_id=unit.id):
            abandon(session, *locked, LeaseEvent.EXPIRE, units_repository.ROUND_CLOSED)
    return free > 0


def spare_count(nodes: int) -> int:
    """Return the number of hot spares of a job: one for every eight nodes, at least one."""
    return -(-nodes // SLOTS_PER_SPARE)


def assign_spares(
    session: Session, settings: Settings, job: Job, slots: list[Slot], idle: Sequence[Slot], units: Sequence[Unit]
) -> None:
    """Assign spares to the vacant ``idle`` slots.

    Fewest failures in this round come first, then hot spares of the job, then the best placement.
    """
    if all(slot.provider is not None for slot in idle):
        return
    jobs_repository.lock_placement(session)
    supply, slow = _supply(session, settings, job), _slow_nodes(session, job)
    suitable = [spare for spare in _suitable(session, job, supply) if spare.provider not in slow]
    failures = _failures(units)
    followed = leases_repository.followed_jobs(session, [spare.provider for spare in suitable])
    for failed in range(MAX_FAILURES):
        for is_hot in (True, False):
            equals = [
                spare
                for spare in suitable
                if failures[spare.provider] == failed and (followed.get(spare.provider) == job.id) is is_hot
            ]
            vacant = [slot for slot in idle if slot.provider is None]
            if equals and vacant:
                holders = [slot.provider for slot in slots if slot.provider is not None]
                best = assignment.best_spares(session, settings, job, len(vacant), equals, holders, supply)
                for slot, spare in zip(vacant, best, strict=False):
                    slot.provider = spare


def _failures(units: Sequence[Unit]) -> Counter[str]:
    """Return the number of units that each node lost; a replaced node gets no more."""
    failures: Counter[str] = Counter()
    for unit in units:
        if unit.status in (UnitStatus.LOST, UnitStatus.REJECTED):
            failures[unit.provider] += MAX_FAILURES if unit.reason == units_repository.ROUND_CLOSED else 1
    return failures


def offer_prefetch_leases(session: Session, settings: Settings, job: Job, checkpoint: Checkpoint) -> None:
    """Offer prefetch leases of the newest checkpoint until hot spares suffice.

    A node prefetches for one job at a time and is offered each checkpoint once.
    """
    asked = leases_repository.follow_leases(session, checkpoint.id)
    following = {lease.holder for lease in asked if lease.status in _PREFETCHING}
    missing = spare_count(job.nodes) - len(following - jobs_repository.slot_holders(session))
    if missing <= 0:
        return
    supply, known = _supply(session, settings, job), {lease.holder for lease in asked}
    free = [spare for spare in _suitable(session, job, supply) if spare.provider not in known]
    followed = leases_repository.followed_jobs(session, [spare.provider for spare in free])
    former = [spare.provider for spare in free if followed.get(spare.provider) == job.id]
    others = [spare for spare in free if spare.provider not in followed]
    chosen = former[:missing]
    if others and len(chosen) < missing:
        holders = [slot.provider for slot in jobs_repository.slots(session, job.id) if slot.provider is not None]
        chosen += assignment.best_spares(session, settings, job, missing - len(chosen), others, holders, supply)
    task = {"job_id": job.id, "spec": job.spec, "round": checkpoint.round, "checkpoint_cid": checkpoint.cid}
    for node in chosen:
        create_lease(
            session,
            kind=LeaseKind.FOLLOW,
            holder=node,
            job_id=job.id,
            task=task,
            checkpoint_id=checkpoint.id,
            seconds=settings.lease_seconds,
        )


def _supply(session: Session, settings: Settings, job: Job) -> list[Offer]:
    return list(providers.open_offers(session, settings, job.tier_id, utc_now()))


def _suitable(session: Session, job: Job, supply: Sequence[Offer]) -> list[Offer]:
    assert job.clearing_price_wei is not None  # set when the job was matched
    assert job.fee_bps is not None  # set when it was funded
    busy, requirements = jobs_repository.slot_holders(session), Requirements.of(job.requirements)
    busy |= dissenting_nodes(session, job.id)
    return [
        offer
        for offer in supply
        if offer.environment_class == job.environment_class
        and requirements.accepts(offer)
        and offer.provider not in busy
        and gross_ask(offer.min_price_wei, job.fee_bps) <= job.clearing_price_wei
    ]
