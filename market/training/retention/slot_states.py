"""What storage need not keep any longer: replica states, and states that were revealed for replays.

A state that was shown because a unit was drawn is released when no dispute of that unit is possible any more; the
published one of a checkpoint, when a newer one is proven to be kept
(:mod:`market.training.replication.slot_state_pins`). States of
convicted units stay: they are evidence.
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
    """Whether a file is a payload, or a replica state that storage has for somebody."""
    return replication_repository.is_public_of_others(session, cid, ())


def unpin_states(database: Database, storage: Storage, network: NetworkParameters, now: datetime) -> int:
    """Unpin the replica states that nobody needs; returns how many. A file is unpinned before that is noted, so whatever
    ends in between is done again."""
    with database.transaction() as session:
        due = [
            (unit.id, unit.slot_state_cid or "")
            for unit in replication_repository.unneeded(session, now - network.disputes.longest)
        ]
        ids = [unit_id for unit_id, _ in due]
        kept = {
            cid
            for _, cid in due
            if replication_repository.is_public_of_others(session, cid, ids) or hooks().is_revealed(session, cid)
        }
    try:
        for _, cid in due:
            if cid not in kept:
                storage.unpin(cid)
    except StorageUnavailable:
        return 0  # the next sweep finds them again
    with database.transaction() as session:
        replication_repository.note_released(session, ids)
    return len(ids)
