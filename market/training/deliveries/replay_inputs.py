"""States that replays start from or are compared with."""

import secrets

from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.training.deliveries.checks import unit_of
from market.training.units import repository as units_repository
from market.training.units.facts import unit_spec
from training_gym.compress.payload_format import payload_size
from training_gym.units.replica_state import load_slot_state, slot_state_bytes
from training_gym.units.trace import boundary_state_bytes, load_boundary_state
from training_gym.verify.canary import altered_state as alter
from training_gym.verify.tolerance import claimed_end, difference
from zoo_protocol.hashing import to_hex


def ends_apart(
    database: Database,
    storage: Storage,
    unit_id: int,
    segment: int,
    computed_cid: str,
    claimed_cid: str,
) -> tuple[float, float]:
    """Relative L2 distances of the parameters: of all, and of the tensor in which it is widest.

    ``claimed_cid`` is the state that the segment ends in. The last one ends in what the unit hands on: from its slot
    state and its payload follow the parameters that they were made of.

    Raises:
        StorageError: storage failed. GymError: a file is not what it was when it was served.
    """
    with database.transaction() as session:
        found = units_repository.unit(session, unit_id)
    assert found is not None  # units are not deleted
    job, unit = found
    spec = unit_spec(job, unit)
    computed = load_boundary_state(spec, storage.get(computed_cid, max_bytes=boundary_state_bytes(spec)))
    if segment + 1 < spec.segments:
        claimed = load_boundary_state(spec, storage.get(claimed_cid, max_bytes=boundary_state_bytes(spec)))
    else:
        slot_state = load_slot_state(spec, storage.get(claimed_cid, max_bytes=slot_state_bytes(spec)))
        payload = storage.get(unit.payload_cid or "", max_bytes=payload_size(spec))
        claimed = claimed_end(unit_of(storage, spec, job, unit), slot_state, payload)
    apart = difference(claimed, computed)
    return apart.whole, apart.widest


def altered_state(
    database: Database, storage: Storage, unit_id: int, segment: int, state_cid: str
) -> tuple[bytes, str] | None:
    """An altered copy of a served state, and its start leaf (0x hex). None: there is nothing to alter yet.

    No session is open while it works.

    Raises:
        StorageError: storage failed. GymError: the file is not what it was when it was served.
    """
    with database.transaction() as session:
        found = units_repository.unit(session, unit_id)
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
