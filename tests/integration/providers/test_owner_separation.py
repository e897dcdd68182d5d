"""Verifiers are sampled among nodes of other owners than the provider's."""

from collections.abc import Iterator

import pytest
from kit import records
from kit.verification.verification_fixtures import VerificationWorld
from sqlalchemy import update

from market.jobs import service as jobs
from market.platform.storage.client import Storage
from market.providers.models import Provider
from market.settings import Settings
from market.training.leases.schemas import LeaseKind
from market.training.units import service as units
from market.verification.replays.verifier_choice import ReplayRequest, _draw

OWNER, ANOTHER = "Zoo Labs", "Another Lab"
OTHER_CLASS = "0x" + "77" * 32


@pytest.fixture
def world(database_url: str, settings: Settings, ipfs: dict[str, str]) -> Iterator[VerificationWorld]:
    world = VerificationWorld(database_url, Storage(ipfs["rpc"], lookup_timeout=0.2), settings)
    yield world
    world.database.dispose()


def owned(world: VerificationWorld, address: str, owner: str | None) -> str:
    world.execute(update(Provider).where(Provider.address == address).values(owner=owner))
    return address


def test_verifiers_of_provider_owner_are_never_selected(world: VerificationWorld) -> None:
    own = [owned(world, world.verifier(), OWNER) for _ in range(4)]
    other = [owned(world, world.verifier(), owner) for owner in (ANOTHER, None)]
    world.drawn_unit(owned(world, world.node(), OWNER))
    for _ in other:
        world.give_up(world.asked(other), LeaseKind.REPLAY, "environment_mismatch")
    assert {replay.verifier for replay in world.replays()} == set(other)
    assert world.asked([*own, *other]) in other  # a silent one is asked again, rather than one of the same owner


def test_no_replay_when_only_same_owner_verifiers_remain(world: VerificationWorld) -> None:
    owned(world, world.verifier(), OWNER)
    unit_id = world.drawn_unit(owned(world, world.node(), OWNER))
    assert world.replays() == []
    assert world.unit(unit_id).status == "checking"  # and so it is not paid


def test_undeclared_owners_are_not_shared(world: VerificationWorld) -> None:
    verifier = world.verifier()
    world.drawn_unit(owned(world, world.node(), None))
    assert world.asked([verifier]) == verifier


def test_owner_rule_holds_for_cross_class_replays(world: VerificationWorld) -> None:
    owned(world, world.verifier(environment=OTHER_CLASS), OWNER)
    unit_id = world.drawn_unit(owned(world, world.node(), OWNER))
    assert drawn_across(world, unit_id) is None
    other = owned(world, world.verifier(environment=OTHER_CLASS), ANOTHER)
    assert drawn_across(world, unit_id) == other


def drawn_across(world: VerificationWorld, unit_id: int) -> str | None:
    with world.database.transaction() as session:
        unit = units.unit_facts(session, unit_id)
        question = ReplayRequest(unit, 0, None, unit.leaves[0], replays=[], of_the_other=[], comparison_id=1)
        drawn = _draw(session, world.settings, question, attempt=0)
    return None if drawn is None else drawn.address


def test_payer_does_not_replay_own_units(world: VerificationWorld) -> None:
    node = world.node()
    job_id = world.running([node])
    payer = world.call(jobs.get, job_id).order.payer
    owned(world, world.verifier(address=payer), OWNER)
    world.add(records.stake(payer, 10**27))
    same_owner, other = owned(world, world.verifier(), OWNER), world.verifier()
    world.deliver(node)
    (unit,) = world.units(job_id)
    world.challenge({unit.id: [0]})
    assert world.asked([payer, same_owner, other]) == other
    world.give_up(other, LeaseKind.REPLAY, "environment_mismatch")
    assert {replay.verifier for replay in world.replays()} == {other}
