"""Verifiers that refuse, time out, or never reveal a committed result: their scores."""

import secrets
from datetime import timedelta

import pytest
from kit.engines.lost_files import lose
from kit.verification.verification_fixtures import VerificationWorld
from sqlalchemy import delete, select, update

from market.domain.lifecycle import LeaseEvent
from market.platform.db.base import utc_now
from market.platform.storage.client import Storage
from market.providers import service as providers
from market.providers.models import HeartbeatHour, Outage, Provider, ProviderEpoch
from market.providers.record import repository as record_repository
from market.training.leases import expiry
from market.training.leases import repository as leases_repository
from market.training.leases import service as leases
from market.training.leases.models import Lease
from market.training.leases.schemas import LeaseKind
from zoo_protocol.hashing import to_hex

pytestmark = pytest.mark.usefixtures("unit_ids", "verifiers")


def counts(world: VerificationWorld, verifier: str) -> tuple[int, int, int]:
    """Return (refused, lost, rejected) of the verifier."""
    query = select(ProviderEpoch.refused, ProviderEpoch.lost, ProviderEpoch.rejected)
    row = world.call(lambda session: session.execute(query.where(ProviderEpoch.provider == verifier)).one_or_none())
    return (0, 0, 0) if row is None else tuple(row)  # type: ignore[return-value]


def run_out(world: VerificationWorld) -> None:
    open_ = Lease.status.in_(["offered", "active"])
    world.execute(update(Lease).where(open_).values(expires_at=utc_now() - timedelta(seconds=1)))
    expiry.expire_due(world.database, utc_now())
    world.advance()


@pytest.fixture
def asked(world: VerificationWorld) -> str:
    world.challenge_first(0)
    return world.asked()


def test_refusing_verifier_is_excused_at_lowest_penalty(world: VerificationWorld, asked: str) -> None:
    world.give_up(asked, LeaseKind.REPLAY, "environment_mismatch")
    assert world.outcomes()[asked] == ("abandoned", "environment_mismatch")
    world.advance()
    assert counts(world, asked) == (1, 0, 0)
    assert world.asked() != asked


def test_verifier_without_half_its_replays_earns_no_base(world: VerificationWorld, verifiers: list[str]) -> None:
    faults = [{"refused": 14}, {"replays": 2, "refused": 1, "lost": 1}, {}]
    with world.database.transaction() as session:
        for verifier, counts in zip(verifiers, faults, strict=True):
            record_repository.add(session, verifier, 7, stake_minutes=10, replayed_wei=3, **counts)
            record_repository.add(session, verifier, 8, stake_minutes=1)
        provider = world.node()
        record_repository.add(session, provider, 8, stake_minutes=10, lost=3)
        earned = {work.account: work.stake_minutes for work in providers.reward_work(session, 7, 8)}
    assert earned == {**dict(zip(verifiers, (1, 11, 11), strict=True)), provider: 10}


@pytest.mark.parametrize("is_pulled", [True, False])
def test_silent_verifier_pays_lost_unit_penalty(world: VerificationWorld, asked: str, is_pulled: bool) -> None:
    if is_pulled:
        assert world.pull(asked, LeaseKind.REPLAY) is not None
    run_out(world)
    assert world.outcomes()[asked] == ("abandoned", "node_silent")
    world.advance()
    assert counts(world, asked) == (0, 1, 0)
    assert world.asked() != asked


def test_verifier_busy_with_other_replay_is_not_silent(world: VerificationWorld, asked: str) -> None:
    with world.database.transaction() as session:
        offered = session.scalars(select(Lease).where(Lease.kind == "replay")).one()
        place = {"holder": asked, "job_id": offered.job_id, "unit_id": world.unit_ids[1]}
        held = leases.create_lease(session, kind="replay", task={}, seconds=3_600, **place)
        held.status, held.pulled_at = "active", utc_now()
        offered.expires_at = utc_now() - timedelta(seconds=1)
    expiry.expire_due(world.database, utc_now())
    world.advance()
    assert world.outcomes()[asked] == ("abandoned", "node_silent")
    assert counts(world, asked) == (0, 0, 0)


@pytest.mark.parametrize("says", [None, "node_stopping"])
def test_verifier_without_reveal_pays_wrong_result_penalty(
    world: VerificationWorld, asked: str, says: str | None
) -> None:
    lease = world.pulled(asked, LeaseKind.REPLAY)
    world.commit_replay(asked, lease, "0x" + "ee" * 32, to_hex(secrets.token_bytes(32)))
    if says is None:
        run_out(world)
    else:
        world.call(leases.fail, lease.id, asked, lease.token, says, "a test")
        world.advance()
    assert world.outcomes()[asked] == ("abandoned", "result_withheld")
    world.advance()
    assert counts(world, asked) == (0, 0, 1)


def test_repeated_requests_of_replay_count_once(world: VerificationWorld, asked: str) -> None:
    for _ in range(5):
        world.give_up(world.asked(), LeaseKind.REPLAY, "input_missing")
        world.advance()
    assert [counts(world, verifier) for verifier in world.verifiers] == [(1, 0, 0)] * 3


def test_replay_withdrawn_by_market_is_not_counted(world: VerificationWorld, asked: str) -> None:
    assert world.pull(asked, LeaseKind.REPLAY) is not None
    with world.database.transaction() as session:
        lease_id = session.scalars(select(Lease.id).where(Lease.holder == asked)).one()
        locked = leases_repository.lock_lease(session, lease_id)
        assert locked is not None
        leases.abandon(session, *locked, LeaseEvent.EXPIRE, "provider_jailed")
    world.advance()
    assert world.outcomes()[asked] == ("abandoned", "provider_jailed")
    assert counts(world, asked) == (0, 0, 0)


def test_refusal_during_storage_outage_is_excused(world: VerificationWorld, asked: str) -> None:
    working, world.storage = world.storage, Storage("http://127.0.0.1:1")
    world.give_up(asked, LeaseKind.REPLAY, "gateway_unavailable")
    world.storage = working
    world.advance()
    assert counts(world, asked) == (0, 0, 0)


def test_refusal_shortly_before_outage_check_is_excused(world: VerificationWorld, asked: str) -> None:
    working, world.storage = world.storage, Storage("http://127.0.0.1:1")
    world.advance()
    world.storage = working
    assert world.all(select(Outage.part)) == ["storage"]
    world.give_up(asked, LeaseKind.REPLAY, "gateway_unavailable")
    world.advance()
    assert counts(world, asked) == (0, 0, 0)
    world.execute(delete(Outage))  # long over
    second = world.asked()
    world.give_up(second, LeaseKind.REPLAY, "gateway_unavailable")
    world.advance()
    assert counts(world, second) == (1, 0, 0)


@pytest.mark.parametrize("segment", [pytest.param(0, marks=pytest.mark.long), 1])
def test_refusal_is_excused_when_file_is_unreadable(
    world: VerificationWorld, ipfs: dict[str, str], segment: int
) -> None:
    world.challenge_first(segment)
    unit = world.unit(world.unit_ids[0])
    if segment:
        assert world.reveal(unit.provider) is not None
    (sample,) = world.samples()
    cid = sample.state_cid if segment else unit.start_checkpoint_cid
    assert cid is not None
    first, content = world.asked(), world.storage.get(cid, max_bytes=2**20)
    lose(ipfs, cid)
    assert world.storage.accepts_writes()
    world.give_up(first, LeaseKind.REPLAY, "input_missing")
    world.advance()
    assert counts(world, first) == (0, 0, 0)
    assert world.storage.put(content, max_bytes=2**20).cid == cid
    second = world.asked()
    assert second != first
    world.give_up(second, LeaseKind.REPLAY, "input_missing")
    world.advance()
    assert counts(world, second) == (1, 0, 0)
    assert counts(world, first) == (0, 0, 0)  # excused timeouts stay excused


def test_silence_is_excused_while_no_heartbeats_arrive(world: VerificationWorld, asked: str) -> None:
    ago = utc_now() - timedelta(minutes=10)
    world.execute(update(Lease).where(Lease.kind == "replay").values(created_at=ago))
    hour = int(ago.timestamp()) // 3_600
    bit = 1 << int(ago.timestamp()) % 3_600 // 60
    world.add(HeartbeatHour(hour=hour, provider=asked, minutes=bit, stake_wei=0))
    run_out(world)
    world.advance()
    assert counts(world, asked) == (0, 0, 0)


def test_frequent_refuser_is_selected_last(world: VerificationWorld) -> None:
    world.execute(update(Provider).where(Provider.address.in_(world.verifiers[:2])).values(reliability_bps=3_999))
    world.challenge({world.unit_ids[0]: [0], world.unit_ids[1]: [0]})
    open_ = [replay.verifier for replay in world.replays()]
    assert open_ == [world.verifiers[2]] * 2
    world.give_up(world.verifiers[2], LeaseKind.REPLAY, "input_missing")
    world.give_up(world.verifiers[2], LeaseKind.REPLAY, "input_missing")
    assert {replay.verifier for replay in world.replays() if replay.status == "assigned"} <= set(world.verifiers[:2])
    assert len(world.replays()) == 4  # the only verifiers left: without them the unit would wait for ever
