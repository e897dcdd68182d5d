"""States stored for canaries and cross-class checks: kept while needed, then released."""

import secrets
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from kit.errors import raising
from kit.killed import Killed
from kit.verification.verification_fixtures import VerificationWorld
from sqlalchemy import select, update

from market.domain.network import DEVNET
from market.platform.db.base import utc_now
from market.platform.storage.client import Storage
from market.platform.storage.errors import StorageUnavailable
from market.settings import Settings
from market.training.deliveries import replay_inputs
from market.training.units import service as units
from market.training.units.models import Unit
from market.verification.decisions import repository as decisions_repository
from market.verification.decisions import state_release as verification
from market.verification.replays import canaries
from market.verification.samples.models import Canary, Comparison, Replay, Sample

LEAF = "0x" + "ee" * 32
LONG_AFTER = DEVNET.disputes.longest + timedelta(minutes=1)


@pytest.fixture
def world(database_url: str, storage: Storage, settings: Settings) -> Iterator[VerificationWorld]:
    world = VerificationWorld(database_url, storage, settings)
    yield world
    world.database.dispose()


@pytest.fixture
def unit_id(world: VerificationWorld) -> int:
    for _ in range(4):
        world.verifier()
    job_id = world.delivered_job([node := world.node()])
    (unit,) = world.units(job_id)
    world.settings = world.settings.model_copy(update={"canary_bps": 0})
    world.challenge({unit.id: [1]})
    assert world.reveal(node) is not None
    return unit.id


def stored(world: VerificationWorld) -> str:
    return world.storage.put(secrets.token_bytes(1000), max_bytes=1000).cid


def put(world: VerificationWorld, row: Any) -> int:
    world.add(row)
    return int(row.id)


def canary(world: VerificationWorld, unit_id: int, status: str, segment: int = 1) -> tuple[int, str]:
    cid = stored(world)
    row = Canary(unit_id=unit_id, segment=segment, status=status, state_cid=cid, start_leaf=LEAF)
    return put(world, row), cid


def release(world: VerificationWorld, after: timedelta = LONG_AFTER) -> int:
    return verification.unpin_expired_states(world.database, world.storage, DEVNET, utc_now() + after)


def decide(world: VerificationWorld, unit_id: int) -> None:
    world.call(units.pass_unit, unit_id)
    assert world.unit(unit_id).status == "verified"


def state_of(world: VerificationWorld, canary_id: int) -> str | None:
    return str(cid) if (cid := world.call(lambda session: session.get_one(Canary, canary_id).state_cid)) else None


@pytest.mark.parametrize("status", ["answered", "dropped"])
def test_canary_state_is_released_after_dispute_period(world: VerificationWorld, unit_id: int, status: str) -> None:
    canary_id, cid = canary(world, unit_id, status)
    assert release(world) == 0  # the unit is not decided
    decide(world, unit_id)
    assert release(world, timedelta(0)) == 0  # it can still be disputed
    assert world.storage.is_pinned(cid)
    assert release(world) == 2  # and the state that was revealed
    assert not world.storage.is_pinned(cid)
    assert (state_of(world, canary_id), release(world)) == (None, 0)


def test_canary_state_stays_during_replay_and_as_evidence(world: VerificationWorld, unit_id: int) -> None:
    planted, planted_cid = canary(world, unit_id, "planted")
    slashed, slashed_cid = canary(world, unit_id, "answered", segment=0)
    (verifier, *_) = world.all(select(Replay.verifier)) or [world.verifier()]
    found = {"verifier": verifier, "status": "overruled", "end_leaf": LEAF}
    put(world, Replay(canary_id=slashed, reason="wrong_replay", **found))
    decide(world, unit_id)
    release(world)
    assert [state_of(world, planted), state_of(world, slashed)] == [planted_cid, slashed_cid]
    assert world.storage.is_pinned(planted_cid)
    assert world.storage.is_pinned(slashed_cid)
    world.execute(update(Replay).where(Replay.canary_id == slashed).values(reason="suspended"))
    assert release(world) == 1  # a warning costs nothing that could be contested with it
    assert not world.storage.is_pinned(slashed_cid)


def test_release_waits_for_next_sweep_when_storage_down(
    world: VerificationWorld, unit_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary_id, cid = canary(world, unit_id, "answered")
    decide(world, unit_id)

    with monkeypatch.context() as patch:
        patch.setattr(Storage, "unpin", raising(StorageUnavailable("a test")))
        assert release(world) == 0
    assert state_of(world, canary_id) == cid
    assert release(world) == 2
    assert not world.storage.is_pinned(cid)


@pytest.mark.parametrize("before_it_is_stored", [True, False])
def test_market_killed_while_planting_canary_leaves_no_file(
    world: VerificationWorld, unit_id: int, monkeypatch: pytest.MonkeyPatch, before_it_is_stored: bool
) -> None:
    altered = secrets.token_bytes(1000)
    monkeypatch.setattr(replay_inputs, "altered_state", lambda *_: (altered, LEAF))
    world.execute(update(Sample).where(Sample.unit_id == unit_id).values(canary_due=True))
    put_file = Storage.put

    def dies(*arguments: Any, **named: Any) -> None:
        if not before_it_is_stored:
            put_file(*arguments, **named)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Storage, "put", dies)
        with pytest.raises(Killed):
            canaries.create_canaries(world.database, world.storage, world.settings)
    world.advance()  # another process
    [row] = world.all(select(Canary))
    assert (row.status, row.state_cid is not None) == ("dropped", True)
    assert world.storage.is_pinned(row.state_cid) is not before_it_is_stored
    decide(world, unit_id)  # nothing waits for it
    assert release(world) == 2
    assert not world.storage.is_pinned(row.state_cid)


def test_canary_is_dropped_when_storage_refuses_state(
    world: VerificationWorld, unit_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_inputs, "altered_state", lambda *_: (b"altered", LEAF))
    world.execute(update(Sample).where(Sample.unit_id == unit_id).values(canary_due=True))

    with monkeypatch.context() as patch:
        patch.setattr(Storage, "put", raising(StorageUnavailable("a test")))
        canaries.create_canaries(world.database, world.storage, world.settings)
    assert world.all(select(Canary.status)) == ["dropped"]


@pytest.mark.parametrize("status", ["passed", "failed"])
def test_comparison_state_is_released_unless_still_needed(world: VerificationWorld, unit_id: int, status: str) -> None:
    [sample] = world.samples()
    computed, shared = stored(world), sample.state_cid
    own, of_unit = stored(world), world.unit(unit_id).payload_cid
    row = Comparison(sample_id=sample.id, unit_id=unit_id, segment=1, status=status)
    row.computed_cid, row.claimed_cid = computed, own
    comparison_id = put(world, row)
    assert release(world) == 0  # the unit is not decided
    decide(world, unit_id)
    assert release(world, timedelta(0)) == 0
    # Its claimed end may be the start of another sampled segment, or the unit's payload or replica state.
    for cid in (shared, of_unit):
        world.execute(
            update(Comparison).values(computed_cid=computed, claimed_cid=cid),
            update(Sample).values(state_cid=shared, created_at=utc_now() + 2 * LONG_AFTER),
        )
        assert release(world) == 1
        assert world.storage.is_pinned(cid or "")
    assert not world.storage.is_pinned(computed)
    world.execute(update(Comparison).values(claimed_cid=own))
    assert release(world) == 1
    assert not world.storage.is_pinned(own)
    named = world.get(Comparison, comparison_id)
    assert (named.computed_cid, named.claimed_cid) == (None, None)


def test_shared_revealed_state_is_released_with_last_user(world: VerificationWorld, unit_id: int) -> None:
    [sample] = world.samples()
    cid = sample.state_cid or ""
    row = Comparison(sample_id=sample.id, unit_id=unit_id, segment=1, status="computed")
    row.computed_cid = cid
    put(world, row)
    decide(world, unit_id)
    assert release(world) == 1  # of the sample
    assert world.storage.is_pinned(cid)
    world.execute(update(Comparison).values(status="failed"))
    assert release(world) == 1
    assert not world.storage.is_pinned(cid)


def test_lost_units_release_their_files(world: VerificationWorld, unit_id: int) -> None:
    _, cid = canary(world, unit_id, "dropped")
    world.call(units.reject_unit, unit_id, "provider_jailed")
    assert world.get(Unit, unit_id).decided_at is not None
    release(world)
    assert not world.storage.is_pinned(cid)


def test_undecided_units_release_later_but_not_older_states(
    world: VerificationWorld, unit_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions_repository, "PAGE", 2)
    waiting = [canary(world, unit_id, "answered", segment)[1] for segment in range(5)]  # of a unit that is not decided
    other = world.node()
    job_id = world.delivered_job([other])
    (unit,) = world.units(job_id)
    later = [canary(world, unit.id, "answered", segment)[1] for segment in range(3)]
    world.call(units.reject_unit, unit.id, "provider_jailed")
    release(world)
    release(world)
    assert [world.storage.is_pinned(cid) for cid in later] == [False] * 3
    assert all(world.storage.is_pinned(cid) for cid in waiting)
