"""Unpinning of states stored for replays, once their unit cannot be disputed any more.

Three kinds: start states of sampled segments, altered states of canaries, and the two end states of a comparison. Files
are unpinned before the rows change, so that an interrupted call is repeated. A shared file stays until its last use.
"""

from collections.abc import Callable, Collection, Sequence
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


def unpin_expired_states(database: Database, storage: Storage, network: NetworkParameters, now: datetime) -> int:
    """Unpin expired states except evidence; return the number of rows."""
    before = now - network.disputes.longest
    try:
        samples = _release(database, storage, Sample, repository.samples_with_states, before)
        canaries = _release(database, storage, Canary, repository.canaries_with_states, before)
        return samples + canaries + _release(database, storage, Comparison, repository.comparisons_with_states, before)
    except StorageUnavailable:
        return 0  # the next sweep retries


def _release(
    database: Database,
    storage: Storage,
    kind: type[Row],
    page_of: Callable[[Session, datetime, int], Sequence[Row]],
    before: datetime,
) -> int:
    with database.transaction() as session:
        due = _of_decided(session, page_of, before)
        ids = [row.id for row in due]
        cids = {cid for row in due for cid in _states(row)}
        unneeded = [cid for cid in cids if not _is_needed(session, cid, kind, ids)]
    for cid in unneeded:
        storage.unpin(cid)
    with database.transaction() as session:
        repository.drop_states(session, kind, ids)
    return len(ids)


def _states(row: Sample | Canary | Comparison) -> list[str]:
    cids = (row.computed_cid, row.claimed_cid) if isinstance(row, Comparison) else (row.state_cid,)
    return [cid for cid in cids if cid is not None]


def _is_needed(session: Session, cid: str, kind: type[Row], ids: Collection[int]) -> bool:
    """Return True if other rows than these need the file."""
    if kind is Canary:
        return False  # an altered state contains random numbers, so no other row has it
    if kind is Sample:
        return samples_repository.is_revealed(session, cid, samples=ids)
    # An end state can be a next segment's start, or a replica state.
    return samples_repository.is_revealed(session, cid, comparisons=ids) or retention.needs_file(session, cid)


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
