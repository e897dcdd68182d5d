"""Altered start states for canaries (:mod:`market.verification.canaries`)."""

import secrets

from market.db.session import Database
from market.jobs import repository
from market.jobs.result_checks import unit_of
from market.jobs.units import unit_spec
from market.storage.service import Storage
from training_gym.distributed.canary import altered_state as alter
from training_gym.distributed.trace import boundary_state_bytes
from zoo_protocol.hashing import to_hex


def altered_state(
    database: Database, storage: Storage, unit_id: int, segment: int, state_cid: str
) -> tuple[bytes, str] | None:
    """An altered copy of a served state, and its start leaf (0x hex). None: there is nothing to alter yet.

    No session is open while it works.

    Raises:
        StorageError: storage failed. GymError: the file is not what it was when it was served.
    """
    with database.transaction() as session:
        found = repository.unit(session, unit_id)
    assert found is not None  # units are not deleted
    job, unit = found
    spec = unit_spec(job, unit)
    most = boundary_state_bytes(spec)
    work = unit_of(storage, spec, job, unit)
    altered = alter(work, segment, storage.get(state_cid, max_bytes=most), secrets.randbits(128))
    if altered is None:
        return None
    data, leaf = altered
    return data, to_hex(leaf)
