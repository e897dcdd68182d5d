"""Each commitment enters a window once."""

import secrets

import pytest
from kit.verification.verification_fixtures import VerificationWorld, verification_world  # noqa: F401  (fixtures)

from market.accounts.service import Principal
from market.jobs import repository as jobs_repository
from market.orders import amendments
from market.providers import lifecycle as providers
from market.training.commitments.errors import CommitmentRepeated
from market.training.leases import service as leases
from market.training.leases import service as leases_service
from market.training.units import service as units_service
from zoo_protocol import merkle
from zoo_protocol.hashing import to_hex
from zoo_protocol.payments.job_record import unit_leaf


def test_every_commitment_enters_window_regardless_of_unit_outcome(world: VerificationWorld) -> None:
    nodes = [world.node() for _ in range(4)]
    job_id = world.running(nodes)
    works = [world.work(node) for node in nodes]
    for work in works:
        work.commit()
    works[0].complete()
    with world.database.transaction() as session:  # delivered, and its provider is excluded before any window
        jobs_repository.lock_job(session, job_id)
        for unit_id in units_service.unverified_units_of(session, nodes[0]):
            units_service.reject_unit(session, unit_id, "provider_jailed")
        providers.jail(session, nodes[0], "slashed")
        leases_service.remove_node_from_jobs(session, nodes[0], "provider_jailed")
    # Committed, and given up.
    world.call(leases.fail, works[1].lease.id, nodes[1], works[1].lease.token, "out_of_memory", "")
    world.advance()
    assert [window.leaf_count for window in world.windows()] == [2], "two can still be uploaded"
    world.commit_window()
    # The other two are committed when the job is cancelled.
    world.call(amendments.cancel, Principal(world.read(job_id).payer, False, 1, "session"), job_id)
    world.commit_window()
    units = world.units(job_id)
    assert {unit.status for unit in units} == {"lost", "rejected"}
    assert [unit.window_id for unit in units] == [1, 1, 2, 2]
    committed = [window.root for window in world.windows()]
    for number, window in enumerate(committed, 1):
        leaves = [
            unit_leaf(u.job_id, u.round, u.slot, u.provider, u.trace_root or "", u.payload_hash or "")
            for u in units
            if u.window_id == number
        ]
        assert to_hex(merkle.root(leaves)) == window
    assert world.read(job_id).status != "running"


def test_repeated_commitment_is_refused(world: VerificationWorld) -> None:
    """Equal leaves would give two windows one root, which the chain accepts once."""
    node = world.node()
    world.running([node])
    first = world.work(node)
    first.commit()
    world.call(leases.fail, first.lease.id, node, first.lease.token, "out_of_memory", "")
    world.dispatch(first.lease.job_id)
    again = world.work(node)
    again.vector, again.payload, again.leaves, again.salt = first.vector, first.payload, first.leaves, first.salt
    with pytest.raises(CommitmentRepeated):
        again.commit()
    again.salt = secrets.token_bytes(32)
    again.commit()
