"""Replica states of checkpoints that are kept: their nodes upload them in the background, by ``publish`` leases.

Nothing waits for them. A slot whose state has arrived can go on from it on any node, as the checkpoint says; one whose
has not starts afresh where another node takes it over.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

from sqlalchemy.orm import Session

from market.domain.lifecycle import NODE_STOPPING
from market.jobs.models import Job
from market.platform.events.service import emit
from market.settings import Settings
from market.training.leases import repository as leases_repository
from market.training.leases.models import Lease
from market.training.leases.schemas import LeaseKind
from market.training.leases.service import create_lease
from market.training.replication import repository as replication_repository
from market.training.units.models import Unit
from market.training.units.slot_states import make_public
from market.training.uploads import repository as uploads_repository
from market.training.uploads.service import SLOT_STATE

MAX_ATTEMPTS = 3
"""How often a node is asked in vain to upload one replica state: without a piece of it arriving, restarts left out."""


def request_uploads(session: Session, settings: Settings, job: Job) -> None:
    """Ask for the replica states that the newest kept checkpoint names and storage does not have; one a slot at a time.

    So a node that needs longer than from one kept checkpoint to the next sends every second one, or fewer.
    """
    newest = job.current_round - job.current_round % job.checkpoint_interval
    wanted = replication_repository.wanted(session, job.id, newest)
    if not wanted:
        return
    asked = replication_repository.publish_leases(session, job.id, [unit.id for unit in wanted])
    under_way = {lease.task["slot"] for lease in asked if lease.status in leases_repository.OPEN_LEASE}
    grew = uploads_repository.touched(session, [unit.id for unit in wanted], SLOT_STATE)
    attempts = Counter(lease.unit_id for lease in asked if _was_in_vain(lease, grew))
    for unit in wanted:
        if unit.slot not in under_way and attempts[unit.id] < MAX_ATTEMPTS:
            task = {"job_id": job.id, "round": unit.round, "slot": unit.slot, "slot_state_cid": unit.slot_state_cid}
            create_lease(
                session,
                kind=LeaseKind.PUBLISH,
                holder=unit.provider,
                job_id=job.id,
                task=task,
                unit_id=unit.id,
                seconds=settings.lease_seconds,
            )


def _was_in_vain(lease: Lease, grew: Mapping[int, datetime]) -> bool:
    """Whether a lease counts as an attempt: it brought no piece, and not because its node was told to stop."""
    return lease.reason != NODE_STOPPING and lease.created_at >= grew.get(lease.unit_id or 0, lease.created_at)


def published(session: Session, lease: Lease, unit: Unit) -> None:
    """A node has uploaded what ``unit`` handed on, as its ``publish`` lease asked, and it is what was declared."""
    make_public(session, lease.job_id, lease.task["slot_state_cid"], unit.slot_state_digest)
    seen = {key: lease.task[key] for key in ("round", "slot", "slot_state_cid")}
    emit(session, lease.job_id, "slot_state", seen | {"provider": lease.holder})
