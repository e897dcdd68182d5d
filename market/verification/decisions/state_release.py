"""Unpinning of states stored for replays, once their unit cannot be disputed any more.

Three kinds: start states of sampled segments, altered states of canaries, and the two end states of a comparison. Files
are unpinned before the rows change, so that an interrupted call is repeated. A shared file stays until its last use.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import TypeVar

from sqlalchemy.orm import Session

from market.domain.network import NetworkParameters
from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.platform.storage.errors import StorageUnavailable
from market.training.retention import service as retention
from market.training.units import service as units
from market.verification.decisions import repository
from market.verification.samples import repository as samples_repository
from market.verification.samples.models import Canary, Comparison, Sample

Row = TypeVar("Row", Sample, Canary, Comparison)
_Forget = Callable[[Session, Collection[int]], None]


def unpin_expired_states(database: Database, storage: Storage, network: NetworkParameters, now: datetime) -> int:
    """Unpin expired states except evidence; return (segments, canaries, comparisons)."""
    before = now - network.disputes.longest
    try:
        samples = _release_samples(database, storage, before)
        canaries = _release_canaries(database, storage, before)
        return samples + canaries + _release_comparisons(database, storage, before)
    except StorageUnavailable:
        return 0  # the next sweep retries


def _release_samples(database: Database, storage: Storage, before: datetime) -> int:
    with database.transaction() as session:
        due = _of_decided(session, repository.samples_with_states, before)
        ids = [sample.id for sample in due]
        cids = {sample.state_cid or "" for sample in due}
        unneeded = [cid for cid in cids if not samples_repository.is_revealed(session, cid, samples=ids)]
    return _release(database, storage, unneeded, ids, repository.drop_states)


def _release_canaries(database: Database, storage: Storage, before: datetime) -> int:
    """Unpin altered states. No other canary shares them, since they contain random numbers."""
    with database.transaction() as session:
        due = _of_decided(session, repository.canaries_with_states, before)
    cids = [canary.state_cid or "" for canary in due]
    return _release(database, storage, cids, [canary.id for canary in due], repository.drop_canary_states)


def _release_comparisons(database: Database, storage: Storage, before: datetime) -> int:
    """Unpin end states, unless a next segment's start or a replica state needs the file."""
    with database.transaction() as session:
        due = _of_decided(session, repository.comparisons_with_states, before)
        ids = [comparison.id for comparison in due]
        cids = {cid for comparison in due for cid in (comparison.computed_cid, comparison.claimed_cid) if cid}
        unneeded = [
            cid
            for cid in cids
            if not (samples_repository.is_revealed(session, cid, comparisons=ids) or retention.needs_file(session, cid))
        ]
    return _release(database, storage, unneeded, ids, repository.drop_comparison_states)


def _of_decided(
    session: Session, page_of: Callable[[Session, datetime, int], Sequence[Row]], before: datetime
) -> list[Row]:
    """Return about a page of rows whose unit was decided before then."""
    due: list[Row] = []
    last = 0
    while len(due) < repository.PAGE and (page := page_of(session, before, last)):
        decided = units.decided_before(session, {row.unit_id for row in page}, before)
        due += [row for row in page if row.unit_id in decided]
        last = page[-1].id
    return due


def _release(database: Database, storage: Storage, cids: Iterable[str], ids: Collection[int], forget: _Forget) -> int:
    for cid in cids:
        storage.unpin(cid)
    with database.transaction() as session:
        forget(session, ids)
    return len(ids)
