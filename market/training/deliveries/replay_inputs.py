"""Start states of canary segments, and distances between end states."""

import secrets

from market.jobs.models import Job
from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.training.deliveries.checks import unit_of
from market.training.units import repository as units_repository
from market.training.units.facts import unit_spec
from market.training.units.models import Unit
from training_gym.compress.payload_format import payload_size
from training_gym.units.replica_state import load_slot_state, slot_state_bytes
from training_gym.units.trace import boundary_state_bytes, load_boundary_state
from training_gym.verify.canary import altered_state as alter
from training_gym.verify.tolerance import claimed_end, difference
from zoo_protocol.hashing import to_hex


def claimed_end_distance(
    database: Database, storage: Storage, unit_id: int, segment: int, computed_cid: str, claimed_cid: str
) -> tuple[float, float]:
    """Return the relative L2 distances of the parameters: over all, and of the widest tensor.

    ``claimed_cid`` is the segment's claimed end state. For the last segment it is the unit's replica state: the
    parameters follow from it and the payload.

    Raises:
        StorageError: storage failed. GymError: a file has changed since it was served.
    """
    job, unit = _unit(database, unit_id)
    spec = unit_spec(job, unit)
    computed = load_boundary_state(spec, storage.get(computed_cid, max_bytes=boundary_state_bytes(spec)))
    if segment + 1 < spec.segments:
        claimed = load_boundary_state(spec, storage.get(claimed_cid, max_bytes=boundary_state_bytes(spec)))
    else:
        slot_state = load_slot_state(spec, storage.get(claimed_cid, max_bytes=slot_state_bytes(spec)))
        payload = storage.get(unit.payload_cid or "", max_bytes=payload_size(spec))
        claimed = claimed_end(unit_of(storage, spec, job, unit), slot_state, payload)
    distance = difference(claimed, computed)
    return distance.whole, distance.widest


def altered_state(
    database: Database, storage: Storage, unit_id: int, segment: int, state_cid: str
) -> tuple[bytes, str] | None:
    """Return an altered copy of a state and its start leaf (0x hex), or None.

    No session is open while it works.

    Raises:
        StorageError: storage failed. GymError: the file has changed since it was served.
    """
    job, unit = _unit(database, unit_id)
    spec = unit_spec(job, unit)
    work = unit_of(storage, spec, job, unit)
    state = storage.get(state_cid, max_bytes=boundary_state_bytes(spec))
    altered = alter(work, segment, state, secrets.randbits(128))
    if altered is None:
        return None
    data, leaf = altered
    return data, to_hex(leaf)


def _unit(database: Database, unit_id: int) -> tuple[Job, Unit]:
    with database.transaction() as session:
        return units_repository.unit(session, unit_id)
