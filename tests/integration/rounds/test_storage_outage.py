"""The market during a storage outage: its work, and failures that it charges to no node."""

from datetime import timedelta

import pytest
from kit.verification.verification_fixtures import VerificationWorld, two_nodes, verification_world  # noqa: F401  (fixtures)
from sqlalchemy import update

from market.platform.db.base import utc_now
from market.platform.storage.client import Storage
from market.platform.storage.errors import StorageUnavailable
from market.verification.samples.models import Sample
from zoo_protocol.verification import reveal_deadline


def test_chain_deadlines_do_not_wait_for_storage(world: VerificationWorld, nodes: list[str]) -> None:
    """A missed segment selection or claim costs a bond."""
    job_id = world.running(nodes)
    withholding, other = nodes
    world.deliver(withholding)
    (unit,) = [unit for unit in world.units(job_id) if unit.provider == withholding]
    world.challenge({unit.id: [1]})
    world.second_job(other)
    committed = world.commit_window()
    world.chain.head = committed.args["seedBlock"] + 1
    before = len(world.intents("latch_seed"))
    world.execute(update(Sample).values(status="failed", reason="withheld_data"))

    working, world.storage = world.storage, Storage("http://127.0.0.1:1")
    with pytest.raises(StorageUnavailable):  # there is evidence to be stored
        world.advance()
    assert len(world.intents("latch_seed")) == before + 1
    assert world.slashes() == []
    world.storage = working
    world.advance()
    assert [slash.provider for slash in world.slashes()] == [withholding]


def test_storage_outage_is_not_data_withholding(world: VerificationWorld) -> None:
    node = world.node()
    job_id = world.delivered_job([node])
    (unit,) = world.units(job_id)
    world.challenge({unit.id: [1]})
    (sample,) = world.samples()
    working, world.storage = world.storage, Storage("http://127.0.0.1:1")
    world.pass_deadline(sample.id)
    world.advance()
    world.storage = working
    world.advance()
    (sample,) = world.samples()
    leases = timedelta(seconds=reveal_deadline.LEASES * world.settings.lease_seconds)
    assert sample.reveal_deadline_at is not None
    assert sample.reveal_deadline_at > utc_now() + leases - timedelta(seconds=30)
    assert world.reveal(node) is not None
    assert [sample.status for sample in world.samples()] == ["revealed"]
    assert world.slashes() == []
