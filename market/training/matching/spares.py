"""Spares: free nodes that may take a slot of a running job. Some of them follow it, so that they can begin at once.

A spare that follows fetches the job's data and each of its checkpoints, by ``follow`` leases. It is neither held for
the job nor paid, but it comes first where a slot becomes vacant. Nothing waits for such a lease, and what a node says
of it is a claim: one that lies begins later, as any other spare would.
"""

from collections import Counter
from collections.abc import Sequence

from sqlalchemy.orm import Session

from market.domain.auctions.clearing import gross_ask
from market.domain.lifecycle import LeaseStatus, UnitStatus
from market.domain.nodes.placement import Requirements
from market.jobs import repository as jobs_repository
from market.jobs.models import Job, Slot
from market.platform.db.base import utc_now
from market.providers import service as providers
from market.providers.service import Offer
from market.settings import Settings
from market.training.checkpoints.models import Checkpoint
from market.training.leases import repository as leases_repository
from market.training.leases.schemas import LeaseKind
from market.training.leases.service import create_lease
from market.training.matching import assignment
from market.training.units.models import Unit

MAX_FAILURES = 3
"""How often one node may lose or fail the units of one round before it gets no more of that round."""


SLOTS_PER_SPARE = 8


_FOLLOWS = (*leases_repository.OPEN_LEASE, LeaseStatus.DONE)


def wanted(nodes: int) -> int:
    """How many spares follow a job of so many nodes: one for every eight of them, at least one."""
    return -(-nodes // SLOTS_PER_SPARE)


def fill(
    session: Session, settings: Settings, job: Job, slots: list[Slot], idle: Sequence[Slot], units: Sequence[Unit]
) -> None:
    """Put spares into the vacant ones of the ``idle`` slots.

    A node that failed in this round comes after those that did not, one that follows the job before those that do not;
    of equals those are taken that go best with the nodes that the job has.
    """
    if all(slot.provider is not None for slot in idle):
        return
    jobs_repository.lock_placement(session)
    supply = _supply(session, settings, job)
    suitable, failures = _suitable(session, job, supply), _failures(units)
    followed = leases_repository.followed_jobs(session, [spare.provider for spare in suitable])
    for failed in range(MAX_FAILURES):
        for follows in (True, False):
            equals = [
                spare
                for spare in suitable
                if failures[spare.provider] == failed and (followed.get(spare.provider) == job.id) is follows
            ]
            vacant = [slot for slot in idle if slot.provider is None]
            if equals and vacant:
                holders = [slot.provider for slot in slots if slot.provider is not None]
                best = assignment.best_spares(session, settings, job, len(vacant), equals, holders, supply)
                for slot, spare in zip(vacant, best, strict=False):
                    slot.provider = spare


def offer_prefetch_leases(session: Session, settings: Settings, job: Job, checkpoint: Checkpoint) -> None:
    """Ask as many spares as are wanted to fetch the job's newest checkpoint; those that followed it before come first.

    A node follows one job at a time, and is asked once for each checkpoint.
    """
    asked = leases_repository.follow_leases(session, checkpoint.id)
    following = {lease.holder for lease in asked if lease.status in _FOLLOWS} - jobs_repository.slot_holders(session)
    missing = wanted(job.nodes) - len(following)
    if missing <= 0:
        return
    supply, known = _supply(session, settings, job), {lease.holder for lease in asked}
    free = [spare for spare in _suitable(session, job, supply) if spare.provider not in known]
    followed = leases_repository.followed_jobs(session, [spare.provider for spare in free])
    faithful = [spare.provider for spare in free if followed.get(spare.provider) == job.id]
    others = [spare for spare in free if spare.provider not in followed]
    chosen = faithful[:missing]
    if others and len(chosen) < missing:
        holders = [slot.provider for slot in jobs_repository.slots(session, job.id) if slot.provider is not None]
        chosen += assignment.best_spares(session, settings, job, missing - len(chosen), others, holders, supply)
    for node in chosen:
        _ask(session, settings, job, checkpoint, node)


def _supply(session: Session, settings: Settings, job: Job) -> list[Offer]:
    """All offers of the job's tier, those of busy nodes too."""
    return list(providers.open_offers(session, settings, job.tier_id, utc_now()))


def _suitable(session: Session, job: Job, supply: Sequence[Offer]) -> list[Offer]:
    """Those of free nodes that meet the job's requirements, are of its class and within its price."""
    assert job.clearing_price_wei is not None  # set when the job was matched
    assert job.fee_bps is not None  # set when it was funded
    busy, requirements = jobs_repository.slot_holders(session), Requirements.of(job.requirements)
    return [
        offer
        for offer in supply
        if offer.environment_class == job.environment_class
        and requirements.accepts(offer)
        and offer.provider not in busy
        and gross_ask(offer.min_price_wei, job.fee_bps) <= job.clearing_price_wei
    ]


def _failures(units: Sequence[Unit]) -> Counter[str]:
    return Counter(unit.provider for unit in units if unit.status in (UnitStatus.LOST, UnitStatus.REJECTED))


def _ask(session: Session, settings: Settings, job: Job, checkpoint: Checkpoint, node: str) -> None:
    task = {"job_id": job.id, "spec": job.spec, "round": checkpoint.round, "checkpoint_cid": checkpoint.cid}
    create_lease(
        session,
        kind=LeaseKind.FOLLOW,
        holder=node,
        job_id=job.id,
        task=task,
        checkpoint_id=checkpoint.id,
        seconds=settings.lease_seconds,
    )
