"""What the market does on the chain while storage is down."""

import pytest
from verification_world import VerificationWorld, two_nodes, verification_world  # noqa: F401  (fixtures)

from market.storage.errors import StorageUnavailable
from market.storage.service import Storage


def test_what_is_due_on_the_chain_does_not_wait_for_storage(world: VerificationWorld, nodes: list[str]) -> None:
    """A step that is not named in time, or a claim that is not answered, costs a bond."""
    job_id = world.running(nodes)
    withholding, other = nodes
    world.deliver(withholding)
    (unit,) = [unit for unit in world.units(job_id) if unit.provider == withholding]
    world.challenge({unit.id: [1]})
    world.second_job(other)
    committed = world.commit_window()
    world.chain.head = committed.args["seedBlock"] + 1
    before = len(world.intents("latch_seed"))
    (sample,) = world.samples()
    world.pass_deadline(sample.id)

    working, world.storage = world.storage, Storage("http://127.0.0.1:1")
    with pytest.raises(StorageUnavailable):  # there is evidence to be stored
        world.advance()
    assert len(world.intents("latch_seed")) == before + 1
    assert world.slashes() == []
    world.storage = working
    world.advance()
    assert [slash.provider for slash in world.slashes()] == [withholding]
