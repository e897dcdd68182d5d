"""Canaries and cross-class checks of disputed units wait and slash no verifier."""

import pytest
from kit.errors import raising
from kit.verification.replay_records import OTHER_LEAF, asked_of, replay_records
from kit.verification.verification_fixtures import VerificationWorld
from sqlalchemy import func, select, update

from market.domain.verification.dispute_routes import DecidedBy, Route
from market.platform.storage.errors import StorageUnavailable
from market.providers import service as providers
from market.training.deliveries import replay_inputs
from market.training.leases.schemas import LeaseKind
from market.training.units import service as units
from market.verification.decisions import unit_outcomes
from market.verification.decisions.dispute_routing import Adjudicator
from market.verification.replays import comparisons
from market.verification.replays import service as replays_service
from market.verification.samples import repository as samples_repository
from market.verification.samples.models import Canary, ClassDrift, Comparison, Replay
from zoo_protocol.hashing import sha256, to_hex

OTHER_CLASS = to_hex(sha256(b"another class"))


@pytest.fixture(autouse=True)
def disputing_market(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Adjudicator, "route", lambda *_: Route(DecidedBy.DISPUTE))
    monkeypatch.setattr(Adjudicator, "open_dispute", lambda *_: "0x" + "dd" * 32)


@pytest.fixture
def unit_id(world: VerificationWorld, verifiers: list[str]) -> int:
    job_id = world.delivered_job([world.node()])
    (unit,) = world.units(job_id)
    world.challenge({unit.id: [0]})
    return unit.id


def refute(world: VerificationWorld) -> None:
    (sample,) = world.samples()
    for _ in range(2):
        world.replay(asked_of(world, sample.id), OTHER_LEAF)
    assert [(sample.status, sample.reason) for sample in world.samples()] == [("failed", "incorrect_computation")]


def test_committee_waits_for_canary_decision(world: VerificationWorld, unit_id: int) -> None:
    state_cid = world.storage.put(b"state", max_bytes=10).cid
    canary = Canary(unit_id=unit_id, segment=0, status="planted", state_cid=state_cid, start_leaf=OTHER_LEAF)
    world.add(canary)
    world.advance()
    refute(world)
    world.advance()
    assert world.unit(unit_id).status == "checking"
    world.execute(update(Canary).values(status="answered"))
    world.advance()
    assert world.unit(unit_id).status == "disputed"
    assert world.slashes() == []


def test_unit_does_not_wait_for_incapable_canary_verifiers(
    world: VerificationWorld, unit_id: int, verifiers: list[str]
) -> None:
    """Two of three fail every replay, as nodes with too little memory do; the provider is paid."""
    state_cid = world.storage.put(b"state", max_bytes=10).cid
    world.add(Canary(unit_id=unit_id, segment=0, status="planted", state_cid=state_cid, start_leaf=OTHER_LEAF))
    (sample,) = world.samples()
    world.replay(asked_of(world, sample.id), world.claim(unit_id, 0))
    for _ in verifiers:
        asked = [replay.verifier for replay in world.replays() if replay.status == "assigned"]
        for verifier in asked:
            world.give_up(verifier, LeaseKind.REPLAY, "out_of_memory")
        world.advance()
    assert world.scalar(select(Canary.status)) == "dropped"
    assert world.unit(unit_id).status == "verified"
    assert {world.provider(verifier).status for verifier in verifiers} == {"active"}


def compared_by_another_class(world: VerificationWorld, unit_id: int) -> str:
    other = world.verifier(environment=OTHER_CLASS)
    (sample,) = world.samples()
    cids = {"computed_cid": "bafkreia", "claimed_cid": "bafkreib"}
    comparison = Comparison(sample_id=sample.id, unit_id=unit_id, segment=0, status="computed", **cids)
    world.add(comparison)
    found = {"verifier": other, "environment_class": OTHER_CLASS, "status": "committed", "end_leaf": OTHER_LEAF}
    world.add(Replay(comparison_id=comparison.id, **found))
    return other


@pytest.mark.parametrize("agrees", [True, False])
def test_own_class_result_precedes_cross_class_pass(
    world: VerificationWorld, unit_id: int, monkeypatch: pytest.MonkeyPatch, agrees: bool
) -> None:
    monkeypatch.setattr(replay_inputs, "claimed_end_distance", lambda *_: (1e-9, 1e-9))
    other = compared_by_another_class(world, unit_id)
    (sample,) = world.samples()
    own = asked_of(world, sample.id)
    world.advance()
    assert [found.status for found in world.samples()] == ["revealed"]

    world.replay(own, world.claim(unit_id, 0) if agrees else OTHER_LEAF)
    (sample,) = world.samples()
    unit = world.unit(unit_id)
    paid = {address for address, (replays, _, _) in replay_records(world).items() if replays}
    if agrees:
        assert (sample.status, sample.reason, unit.status) == ("passed", None, "verified")
        assert paid == {own, other}
    else:  # two of its class are to decide
        assert (sample.status, unit.status) == ("revealed", "checking")
        world.replay(asked_of(world, sample.id), OTHER_LEAF)
        assert [found.status for found in world.samples()] == ["failed"]
    assert unit.tolerated_segments in (None, [])


def test_comparison_waits_for_unreachable_storage(
    world: VerificationWorld, unit_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared_by_another_class(world, unit_id)
    # No verifier of the class works on it.
    world.execute(update(Replay).where(Replay.sample_id.is_not(None)).values(status="abandoned"))

    monkeypatch.setattr(replay_inputs, "claimed_end_distance", raising(StorageUnavailable("no answer")))
    with pytest.raises(StorageUnavailable):
        comparisons.compare_states(world.database, world.storage)
    assert world.scalar(select(Comparison.status)) == "computed"
    monkeypatch.setattr(replay_inputs, "claimed_end_distance", lambda *_: (1e-9, 1e-9))
    comparisons.compare_states(world.database, world.storage)
    assert world.scalar(select(Comparison.status)) == "passed"


@pytest.mark.parametrize("rejected", [True, False])
def test_distant_comparison_is_paid_by_dispute_outcome(world: VerificationWorld, unit_id: int, rejected: bool) -> None:
    other = world.verifier(environment=OTHER_CLASS)
    (sample,) = world.samples()
    comparison = Comparison(sample_id=sample.id, unit_id=unit_id, segment=0, status="failed", whole=1e-3)
    world.add(comparison)
    found = {"verifier": other, "environment_class": OTHER_CLASS, "status": "disagreed", "end_leaf": OTHER_LEAF}
    world.add(Replay(comparison_id=comparison.id, **found))
    refute(world)
    assert world.unit(unit_id).status == "disputed"
    assert replay_records(world) == {}  # no payment or penalty before the end

    with world.database.transaction() as session:
        unit = units.unit_facts(session, unit_id)
        providers.require(session, unit.provider, lock=True)
        if rejected:
            units.return_to_checking(session, unit_id)
            failed = samples_repository.lock_sample_of(session, unit_id, 0)
            assert failed is not None
            replays_service.clear_sample(session, failed, unit)
        else:
            unit_outcomes._reject(session, unit_id, "incorrect_computation")
    drifts = world.scalar(select(func.count()).select_from(ClassDrift))
    assert drifts == rejected
    right = {address for address, (replays, _, _) in replay_records(world).items() if replays}
    assert (other in right) is not rejected
    assert world.provider(other).status == "active"
    assert world.slashes() == []
