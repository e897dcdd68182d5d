"""Unpinning of replica states and of states that were revealed for replays.

A revealed state is released when its unit cannot be disputed any more. A published state of a checkpoint is released
when a newer one has proven holders (:mod:`market.training.replication.slot_state_pins`). States of rejected units are
evidence and stay.
"""

from datetime import datetime

from sqlalchemy.orm import Session

from market.domain.network import NetworkParameters
from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.platform.storage.errors import StorageUnavailable
from market.training.leases.verification_hooks import hooks
from market.training.replication import repository as replication_repository


def needs_file(session: Session, cid: str) -> bool:
    """Return True if a file is a payload or a public replica state."""
    return replication_repository.is_used_by_other_units(session, cid, ())


def unpin_states(database: Database, storage: Storage, network: NetworkParameters, now: datetime) -> int:
    """Unpin replica states that have no use; return their number.

    Files are unpinned before the rows change, so that an interrupted call is repeated.
    """
    with database.transaction() as session:
        due = [
            (unit.id, unit.slot_state_cid or "")
            for unit in replication_repository.unneeded(session, now - network.disputes.longest)
        ]
        ids = [unit_id for unit_id, _ in due]
        kept = {
            cid
            for _, cid in due
            if replication_repository.is_used_by_other_units(session, cid, ids) or hooks().is_revealed(session, cid)
        }
    try:
        for _, cid in due:
            if cid not in kept:
                storage.unpin(cid)
    except StorageUnavailable:
        return 0  # the next sweep retries
    with database.transaction() as session:
        replication_repository.mark_unpublished(session, ids)
    return len(ids)
