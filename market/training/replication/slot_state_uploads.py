"""Background uploads of the replica states of kept checkpoints, by ``publish`` leases.

Training does not wait for them. Any node can continue from an uploaded state. Without it, a node that takes the replica
over starts afresh.
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
from market.training.units.repository import make_state_public
from market.training.uploads import repository as uploads_repository
from market.training.uploads.service import SLOT_STATE

MAX_ATTEMPTS = 3
"""Publish leases for one replica state that may end without a new piece; shutdowns of the node do not count."""


def request_uploads(session: Session, settings: Settings, job: Job) -> None:
    """Request the states that the newest kept checkpoint names and storage lacks.

    A node that uploads for longer than the interval of kept checkpoints skips some of them.
    """
    newest = job.current_round - job.current_round % job.checkpoint_interval
    wanted = replication_repository.states_to_publish(session, job.id, newest)
    if not wanted:
        return
    asked = replication_repository.publish_leases(session, job.id, [unit.id for unit in wanted])
    under_way = {lease.task["slot"] for lease in asked if lease.status in leases_repository.OPEN_LEASE}
    grew = uploads_repository.last_changes(session, [unit.id for unit in wanted], SLOT_STATE)
    attempts = Counter(lease.unit_id for lease in asked if _has_failed(lease, grew))
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


def _has_failed(lease: Lease, grew: Mapping[int, datetime]) -> bool:
    """Return True if a lease brought no piece for a reason other than the node's shutdown."""
    return lease.reason != NODE_STOPPING and lease.created_at >= grew.get(lease.unit_id or 0, lease.created_at)


def published(session: Session, lease: Lease, unit: Unit) -> None:
    """Record the checked upload of a unit's replica state."""
    make_state_public(session, lease.job_id, lease.task["slot_state_cid"], unit.slot_state_digest)
    seen = {key: lease.task[key] for key in ("round", "slot", "slot_state_cid")}
    emit(session, lease.job_id, "slot_state", seen | {"provider": lease.holder})
