"""Release of a job's files in storage."""

from collections.abc import Collection, Sequence
from contextlib import suppress

from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.platform.storage.errors import BlobNotFound
from market.training.leases.verification_hooks import hooks
from market.training.replication import repository

FILES_PER_BATCH = 100
"""Files per check for other uses."""


def unpin_unneeded(database: Database, storage: Storage, job_id: str, files: Collection[str]) -> None:
    """Unpin files that are needed nowhere else. Raises StorageUnavailable."""
    ordered = sorted(files)
    for start in range(0, len(ordered), FILES_PER_BATCH):
        some = ordered[start : start + FILES_PER_BATCH]
        needed = _needed(database, job_id, some)
        for cid in some:
            if cid not in needed:
                storage.unpin(cid)
        for cid in _needed(database, job_id, some):  # another job stored it since, or before a crash here
            with suppress(BlobNotFound):
                storage.pin(cid)


def _needed(database: Database, job_id: str, cids: Sequence[str]) -> set[str]:
    with database.transaction() as session:
        elsewhere = repository.needed_elsewhere(session, job_id, cids)
        return elsewhere | {cid for cid in cids if hooks().is_revealed(session, cid)}
