"""Bursts of undecided units: their value, their least time, and what false work reopens."""

from dataclasses import replace
from datetime import timedelta

import pytest
from kit.verification.verification_fixtures import VerificationWorld
from sqlalchemy import update

from market.domain.network import DEVNET, ZEN
from market.payments.payables import service as payables
from market.payments.settlement import contested_units
from market.platform.db.base import utc_now
from market.providers.models import Provider, Stake
from market.training.commitments.errors import CommitmentTooEarly
from market.training.units.models import Unit

WRONG = "0x" + "ee" * 32


def payable(world: VerificationWorld, job_id: str) -> list[int]:
    found = world.call(lambda session: contested_units.undisputed(session, payables.payable_units(session, job_id)))
    return [unit.id for unit in found[0]]


def test_undecided_value_beyond_stake_waits(world: VerificationWorld) -> None:
    node = world.node()
    world.execute(update(Stake).where(Stake.address == node).values(stake_wei=ZEN))
    job_id = world.running([node])
    world.train_round(job_id, [node])
    assert [unit.status for unit in world.units(job_id)] == ["uploaded"]
    world.verify_uploaded(job_id)
    world.dispatch(job_id)
    assert [unit.status for unit in world.units(job_id)] == ["verified", "leased"]


def test_commitment_before_fastest_node_is_refused(world: VerificationWorld) -> None:
    node = world.node()
    job_id = world.running([node])
    work = world.work(node)
    world.network = replace(DEVNET, max_speedup=1)  # nine seconds for a slow machine to commit too early
    least = timedelta(seconds=36 / 4)
    with pytest.raises(CommitmentTooEarly):
        work.commit()
    (unit,) = world.units(job_id)
    world.change(Unit, unit.id, created_at=unit.created_at - least)
    work.commit()


def test_false_unit_reopens_unpaid_units_of_provider(world: VerificationWorld, verifiers: list[str]) -> None:
    node = world.node()
    job_id = world.running([node])
    world.train_round(job_id, [node])
    first, state = world.units(job_id)[0], world.states[node]
    world.challenge({first.id: []})
    assert world.unit(first.id).status == "verified"
    world.deliver(node)
    second = world.units(job_id)[1]
    world.challenge({second.id: [1]})
    world.reveal(node)
    for _ in range(2):
        world.replay(world.asked(verifiers), WRONG)
    assert world.unit(second.id).status == "rejected"
    world.advance()
    again = world.unit(first.id)
    assert (again.status, again.sampling_bps, payable(world, job_id)) == ("checking", 10_000, [])
    assert [sample.segment for sample in world.samples() if sample.unit_id == first.id] == [0, 1]
    world.states[node] = state
    world.reveal(node)
    segments = {sample.id: sample.segment for sample in world.samples()}
    for _ in range(2):
        replay = next(one for one in world.replays() if one.status == "assigned")
        world.replay(replay.verifier, world.claim(first.id, segments[replay.sample_id]))
    assert (world.unit(first.id).status, payable(world, job_id)) == ("verified", [first.id])
    assert {window.status for window in world.windows()} == {"decided"}


def test_provider_in_dispute_is_paid_after_it(world: VerificationWorld) -> None:
    node = world.node()
    job_id = world.running([node])
    world.train_round(job_id, [node])
    world.verify_uploaded(job_id)
    (unit,) = world.units(job_id, round=0)
    for disputed_at, found in ((utc_now(), []), (None, [unit.id])):
        world.change(Provider, node, disputed_at=disputed_at)
        assert payable(world, job_id) == found
