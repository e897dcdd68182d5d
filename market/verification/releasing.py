"""States that were revealed for replays, released once no dispute of their unit is possible any more."""

from datetime import datetime

from market.db.session import Database
from market.domain.network import NetworkParameters
from market.jobs import service as jobs
from market.storage.errors import StorageUnavailable
from market.storage.service import Storage
from market.verification import repository


def release_states(database: Database, storage: Storage, network: NetworkParameters, now: datetime) -> int:
    """Unpin the start states of drawn segments that nobody needs; returns how many.

    What a penalty's evidence names stays. A file is unpinned before that is noted, so it is done again if this ends.
    """
    before = now - network.disputes.longest
    with database.transaction() as session:
        found = repository.samples_with_states(session, before)
        decided = jobs.decided_before(session, {sample.unit_id for sample in found}, before)
        due = {sample.id: sample.state_cid or "" for sample in found if sample.unit_id in decided}
        kept = {cid for cid in due.values() if repository.is_revealed(session, cid, besides=due.keys())}
    try:
        for cid in set(due.values()) - kept:
            storage.unpin(cid)
    except StorageUnavailable:
        return 0  # the next sweep finds them again
    with database.transaction() as session:
        repository.drop_states(session, due.keys())
    return len(due)
