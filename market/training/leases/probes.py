"""Reports of probes: each node's digest of a job's shapes, compared within the job."""

from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from market.domain.lifecycle import LeaseEvent, UnitStatus
from market.platform.db.base import utc_now
from market.platform.db.session import enqueue_after_commit
from market.training.leases import repository as leases_repository
from market.training.leases.errors import WrongStep
from market.training.leases.schemas import LeaseKind
from market.training.leases.service import abandon, lock_held
from market.training.units.probes import dissenting_nodes

PROBE_MISMATCH = "probe_mismatch"
"""Reason of units of a node that computes a job's shapes as only a minority of its nodes does."""


def record_probe(
    session: Session, lease_id: str, address: str, token: str, digest: str, lease_seconds: float
) -> datetime:
    """Record a node's probe and extend its lease; return the lease's expiry.

    Units of dissenting nodes that are not committed are lost, at no cost for the nodes. This can end the caller's own
    lease, and others if the majority changes.

    Raises:
        LeaseLost.
        WrongStep: the lease requests no probe.
    """
    job, unit, lease = lock_held(session, lease_id, address, token)
    if unit is None or not lease.task.get("probe"):
        raise WrongStep("The task requests no probe.", field="probe")
    unit.probe = digest
    lease.expires_at = utc_now() + timedelta(seconds=lease_seconds)
    session.flush()
    dissenting = dissenting_nodes(session, job.id)
    for locked in leases_repository.lock_open_leases(session, job.id, kinds=[LeaseKind.TRAIN]):
        _, held, open_lease = locked
        if open_lease.holder in dissenting and held is not None and held.status == UnitStatus.LEASED:
            abandon(session, *locked, LeaseEvent.EXPIRE, PROBE_MISMATCH)
    if dissenting:
        enqueue_after_commit(session, "jobs.dispatch", job.id)
    return lease.expires_at
