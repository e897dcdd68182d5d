"""Deadlines of providers for revealing sampled segments."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from kit.killed import Killed
from kit.verification.replay_records import seen
from kit.verification.verification_fixtures import VerificationWorld
from sqlalchemy import update

from market.platform.db.base import utc_now
from market.training.units import service as units_service
from market.training.units import slot_states
from market.training.units.models import Unit
from market.verification.decisions import service as decisions_service
from market.verification.replays import comparisons, sampling
from market.verification.samples.models import Comparison, Sample
from zoo_protocol.verification import reveal_deadline


def test_sampled_states_share_deadline_of_one_link(world: VerificationWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(4):
        world.verifier()
    busy, other, quiet = nodes = [world.node() for _ in range(3)]
    job_id = world.delivered_job(nodes)
    units = {unit.provider: unit.id for unit in world.units(job_id)}
    world.execute(update(Unit).where(Unit.id == units[other]).values(provider=busy))  # two units of one provider
    monkeypatch.setattr(reveal_deadline, "BYTES_PER_SECOND", 100)
    world.challenge({unit_id: [1] for unit_id in units.values()})

    def deadline(unit_id: int) -> datetime:
        (found,) = [sample.reveal_deadline_at for sample in world.samples() if sample.unit_id == unit_id]
        assert found is not None
        return found

    alone = deadline(units[quiet])
    first, second = sorted(deadline(units[node]) for node in (busy, other))
    leases = timedelta(seconds=reveal_deadline.LEASES * world.settings.lease_seconds)
    transfer = second - first
    assert transfer > timedelta(seconds=10)
    assert abs(first - alone) < leases  # sampled a moment before or after
    (sample, *_) = world.samples()
    assert alone - sample.created_at > transfer + leases - timedelta(seconds=30)


def test_comparison_ends_are_due_after_sampled_states(
    world: VerificationWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both use one link; a late end costs the verifier's pay, a late start the provider's stake."""
    for _ in range(4):
        world.verifier()
    nodes = [world.node() for _ in range(2)]
    job_id = world.delivered_job(nodes)
    first, second = (unit.id for unit in world.units(job_id))
    world.execute(update(Unit).values(provider=nodes[0]))
    monkeypatch.setattr(reveal_deadline, "BYTES_PER_SECOND", 100)
    world.challenge({first: [1], second: [1]})
    drawn, shown = world.samples()
    world.execute(update(Sample).where(Sample.id == shown.id).values(status="revealed"))
    world.add(Comparison(sample_id=shown.id, unit_id=shown.unit_id, segment=0, status="computed"))
    comparisons.request_claims(world.database, world.settings)
    with world.database.transaction() as session:
        end = session.query(Comparison).one().reveal_deadline_at
        unit = units_service.unit_facts(session, first)
        transfer = timedelta(seconds=slot_states.reveal_bytes(session, unit, [1]) / 100)
        assert drawn.reveal_deadline_at is not None
        assert end is not None
        assert transfer > timedelta(seconds=10)
        assert end >= drawn.reveal_deadline_at + transfer
        assert sampling.reveal_by(session, world.settings, unit, [1]) >= end + transfer


def test_outage_is_not_data_withholding(world: VerificationWorld) -> None:
    for _ in range(3):
        world.verifier()
    node = world.node()
    job_id = world.delivered_job([node])
    (unit,) = world.units(job_id)
    world.challenge({unit.id: [1]})
    (sample,) = world.samples()
    world.pass_deadline(sample.id)
    seen(world, node, 30, 0)  # it is back
    world.advance()
    (sample,) = world.samples()
    assert sample.status == "drawn"
    leases = timedelta(seconds=reveal_deadline.LEASES * world.settings.lease_seconds)
    assert sample.reveal_deadline_at is not None
    assert sample.reveal_deadline_at > utc_now() + leases - timedelta(seconds=30)
    assert world.slashes() == []

    world.pass_deadline(sample.id)
    seen(world, node, *range(30))
    world.advance()
    assert [(sample.status, sample.reason) for sample in world.samples()] == [("failed", "withheld_data")]
    assert [slash.provider for slash in world.slashes()] == [node]


def test_market_killed_after_sampling_has_requested_state(
    world: VerificationWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = world.node()
    job_id = world.delivered_job([node])
    (unit,) = world.units(job_id)

    def draw_and_die(*arguments: Any) -> None:
        sampling.draw_samples(*arguments)
        if world.samples():
            raise Killed

    monkeypatch.setattr(decisions_service, "draw_samples", draw_and_die)
    with pytest.raises(Killed):
        world.challenge({unit.id: [1]})
    monkeypatch.undo()
    assert [sample.status for sample in world.samples()] == ["drawn"]
    assert world.reveal(node) is not None
    assert [sample.status for sample in world.samples()] == ["revealed"]
