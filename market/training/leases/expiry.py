"""Expiry of leases."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import structlog
from sqlalchemy.orm import Session

from market.domain.lifecycle import NODE_SILENT, REPLAY_OVERDUE, LeaseEvent
from market.platform.db.base import utc_now
from market.platform.db.session import Database
from market.providers.outages import service as outages
from market.training.leases import repository as leases_repository
from market.training.leases.service import UPLOAD_OVERDUE, abandon
from training_gym.spec.config import TrainingSpec
from training_gym.units.replica_state import slot_state_bytes
from training_gym.units.trace import boundary_state_bytes
from zoo_protocol.verification import reveal_deadline

_log = structlog.get_logger(__name__)


def report_api(session: Session, lease_seconds: float) -> None:
    """Record that the API is up; leases expired in its outage get the full time again."""
    outage = outages.report(session, outages.API, outages.api_gap(lease_seconds))
    if outage is not None:
        until = outage.ends_at + timedelta(seconds=lease_seconds)
        renewed = leases_repository.extend_leases(session, outage.starts_at, until)
        _log.warning("api_outage", since=str(outage.starts_at), until=str(outage.ends_at), leases=renewed)


def expire_due(database: Database, now: datetime) -> int:
    """End every expired lease, each in its own transaction; return their number."""
    with database.transaction() as session:
        due = leases_repository.expired_leases(session, now)
    _expire(database, due, NODE_SILENT, ran_out_by=now)
    return len(due)


def expire_uploads(database: Database, committed_before: datetime) -> int:
    """Lose units committed before then and not uploaded, without outages; return the number.

    An acknowledged commitment must enter a commitment window in time, and an upload after that is too late.
    """
    with database.transaction() as session:
        old = leases_repository.overdue_uploads(session, committed_before)
        due = [lease_id for lease_id, since in old if since + _outage(session, since) < committed_before]
    _expire(database, due, UPLOAD_OVERDUE)
    return len(due)


def was_busy(session: Session, lease_id: str) -> bool:
    """Return True if a replay's holder worked on another one: nodes replay one at a time."""
    lease = leases_repository.lease(session, lease_id)
    assert lease is not None  # leases are deleted only long after their job has ended
    return lease.pulled_at is None and leases_repository.held_another_lease(session, lease)


def expire_replays(database: Database, longest: timedelta, now: datetime) -> int:
    """End replays and evaluations held longer than ``longest`` plus transfer; return the number.

    Heartbeats keep a lease alive, and the unit cannot be decided before the replay ends. API outages do not count.
    """
    with database.transaction() as session:
        old = leases_repository.replays_since(session, now - longest)
        due = [id_ for id_, since, spec in old if since + longest + _transfer(spec) + _outage(session, since) <= now]
    _expire(database, due, REPLAY_OVERDUE)
    return len(due)


def _expire(database: Database, lease_ids: Sequence[str], reason: str, *, ran_out_by: datetime | None = None) -> None:
    """End the open leases; with ``ran_out_by`` only those without a later heartbeat."""
    for lease_id in lease_ids:
        with database.transaction() as session:
            locked = leases_repository.lock_lease(session, lease_id)
            if not locked or locked[2].status not in leases_repository.OPEN_LEASE:
                continue
            if ran_out_by is None or locked[2].expires_at <= ran_out_by:
                abandon(session, *locked, LeaseEvent.EXPIRE, reason)


def _outage(session: Session, since: datetime) -> timedelta:
    return outages.outage_time(session, since, utc_now(), [outages.API])


def _transfer(spec: dict[str, Any]) -> timedelta:
    """Return the time to fetch a replay's start states, and to upload another class's end."""
    parsed = TrainingSpec.from_dict(spec)
    size = boundary_state_bytes(parsed) + slot_state_bytes(parsed)
    return timedelta(seconds=2 * size / reveal_deadline.BYTES_PER_SECOND)
