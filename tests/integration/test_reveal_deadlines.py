"""How long a provider has to show what was drawn of its units."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from sqlalchemy import update
from verification_world import VerificationWorld

from market.jobs.models import Unit
from market.settings import Settings
from market.storage.service import Storage
from zoo_protocol import reveals


@pytest.fixture
def world(database_url: str, settings: Settings, ipfs: dict[str, str]) -> Iterator[VerificationWorld]:
    world = VerificationWorld(database_url, Storage(ipfs["rpc"], lookup_timeout=0.2), settings)
    yield world
    world.database.dispose()


def test_states_that_are_drawn_at_once_have_the_time_that_one_link_needs_for_all(
    world: VerificationWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        world.verifier()
    busy, other, quiet = nodes = [world.node() for _ in range(3)]
    job_id = world.running(nodes)
    for node in nodes:
        world.deliver(node)
    units = {unit.provider: unit.id for unit in world.units(job_id)}
    mine = update(Unit).where(Unit.id == units[other]).values(provider=busy)
    world.rows(lambda session: session.execute(mine))  # two units of one provider
    monkeypatch.setattr(reveals, "BYTES_PER_SECOND", 100)
    world.challenge({unit_id: [1] for unit_id in units.values()})

    def deadline(unit_id: int) -> datetime:
        (found,) = [sample.reveal_deadline_at for sample in world.samples() if sample.unit_id == unit_id]
        assert found is not None
        return found

    alone = deadline(units[quiet])
    first, second = sorted(deadline(units[node]) for node in (busy, other))
    leases = timedelta(seconds=reveals.LEASES * world.settings.lease_seconds)
    transfer = second - first
    assert transfer > timedelta(seconds=10)
    assert abs(first - alone) < leases  # drawn a moment before or after
    (sample, *_) = world.samples()
    assert alone - sample.created_at > transfer + leases - timedelta(seconds=30)
