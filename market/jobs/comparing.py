"""How far the claimed end of a segment is from one that was computed in another environment class."""

from market.db.session import Database
from market.jobs import repository
from market.jobs.result_checks import unit_of
from market.jobs.units import unit_spec
from market.storage.service import Storage
from training_gym.compression.wire import payload_size
from training_gym.distributed.trace import boundary_state_bytes, load_boundary_state
from training_gym.slot_state import load_slot_state, slot_state_bytes
from training_gym.tolerance import claimed_end, difference


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
        found = repository.unit(session, unit_id)
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
