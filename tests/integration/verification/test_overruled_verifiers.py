"""Overruled verifiers: unpaid, suspended the first time, slashed the second."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from kit.jobs.jobs_fixtures import at_once
from kit.verification.replay_records import OTHER_LEAF, asked_of, replay_records
from kit.verification.verification_fixtures import VerificationWorld
from sqlalchemy import select, update

from market.domain.network import DEVNET
from market.platform.db.base import utc_now
from market.providers import lifecycle
from market.providers import service as providers
from market.providers.models import Provider, ProviderEpoch, Stake
from market.providers.record import repository as record_repository
from market.providers.record.reliability import review
from market.training.leases import expiry
from market.training.leases import service as leases
from market.training.leases.errors import LeaseLost
from market.training.leases.models import Lease
from market.training.leases.schemas import LeaseKind
from market.training.units import service as units
from market.verification.decisions.slashes import slash_verifiers
from market.verification.penalties import service as penalties
from market.verification.samples.models import Replay, Sample
from zoo_protocol.content.cid import digest_of
from zoo_protocol.hashing import to_hex

pytestmark = pytest.mark.usefixtures("unit_ids", "verifiers")


def warn(world: VerificationWorld, ago: timedelta) -> None:
    world.execute(update(Provider).where(Provider.address.in_(world.verifiers)).values(warned_at=utc_now() - ago))


def overrule_one(world: VerificationWorld, unit_id: int, sample_id: int) -> str:
    wrong = asked_of(world, sample_id)
    world.replay(wrong, OTHER_LEAF)
    for _ in range(2):
        world.replay(asked_of(world, sample_id), world.claim(unit_id, 0))
    return wrong


def test_single_false_verifier_is_suspended_unpaid_without_slashing(world: VerificationWorld) -> None:
    world.challenge_first(0)
    wrong = world.asked()
    world.replay(wrong, OTHER_LEAF)
    world.replay(world.asked(), world.claim(world.unit_ids[0], 0))
    assert world.unit(world.unit_ids[0]).status == "checking"  # one against one: a third decides
    world.replay(world.asked(), world.claim(world.unit_ids[0], 0))
    assert world.unit(world.unit_ids[0]).status == "verified"
    assert world.intents("slash") == []
    assert world.provider(world.nodes[0]).status == "active"
    assert world.outcomes()[wrong] == ("overruled", "suspended")
    assert (world.provider(wrong).status, world.provider(wrong).reason) == ("demoted", "overruled")
    honest = set(world.verifiers) - {wrong}
    assert {world.provider(one).status for one in honest} == {"active"}
    segment_wei = world.call(units.unit_facts, world.unit_ids[0]).gross_wei // world.spec.segments
    assert segment_wei > 0
    assert replay_records(world) == {wrong: (0, 0, 1)} | dict.fromkeys(honest, (1, segment_wei, 0))


@pytest.mark.parametrize("was_down", [False, True])
def test_warned_verifier_is_slashed_once_with_evidence(world: VerificationWorld, was_down: bool) -> None:
    """A downtime slash of 5 % does not replace this slash of 20 %."""
    world.challenge_first(0)
    with world.database.transaction() as session:  # at the sampling rate there is never a second of two segments
        times = ("reveal_requested_at", "reveal_deadline_at", "reveal_until_at")
        limits = {column: utc_now() + timedelta(seconds=60 * number) for number, column in enumerate(times)}
        session.add(Sample(unit_id=world.unit_ids[0], segment=1, status="drawn", **limits))
    world.advance()
    warn(world, timedelta(days=31))
    first, second = (sample.id for sample in world.samples())
    wrong = overrule_one(world, world.unit_ids[0], first)
    world.advance()
    assert world.slashes() == []  # the unit's trace is in the evidence, and another segment is not decided
    if was_down:
        jailed = world.final("ProviderStaking", "Jailed", provider=wrong)
        world.call(lambda session: lifecycle.on_stake_changed(DEVNET, session, jailed))
    assert world.reveal(world.nodes[0]) is not None
    while world.samples()[1].status == "revealed":
        world.replay(asked_of(world, second), world.claim(world.unit_ids[0], 1))
    assert at_once([lambda: slash_verifiers(world.database, world.storage)] * 2) == [None] * 2
    world.advance()
    (slash,), (intent,) = world.slashes(), world.intents("slash")
    assert (slash.provider, slash.offence, intent.arguments) == (wrong, "wrong_replay", [wrong, "5", slash.evidence])
    assert world.outcomes(first)[wrong] == ("overruled", "wrong_replay")
    assert (world.provider(wrong).status, world.provider(wrong).reason) == ("jailed", "wrong_replay")
    assert {world.unit(one).status for one in world.unit_ids} == {"verified"}
    assert world.provider(world.nodes[0]).status == "active"
    evidence = json.loads(world.storage.get(slash.evidence_cid, max_bytes=2**20))
    assert slash.evidence == to_hex(digest_of(slash.evidence_cid))
    assert (evidence["offence"], evidence["verifier"], evidence["segment"]) == ("wrong_replay", wrong, 0)
    found = {replay["verifier"]: replay["end_leaf"] for replay in evidence["replays"]}
    assert found.pop(wrong) == OTHER_LEAF
    assert set(found.values()) == {world.claim(world.unit_ids[0], 0)}
    slashed = world.final("ProviderStaking", "Slashed", provider=wrong, offence=5, amount=100, evidence=slash.evidence)
    world.call(penalties.on_slashed, slashed)
    assert [(s.amount_wei, s.tx) for s in world.slashes()] == [(100, slashed.tx_hash)]
    assert world.call(penalties.job_slashes, slash.job_id) == []  # the job's record lists who delivered its work

    with world.database.transaction() as session:  # released at once, and overruled on the unit's other segment too
        lifecycle.on_stake_changed(DEVNET, session, world.final("ProviderStaking", "Released", provider=wrong))
        asked = session.scalar(select(Replay).where(Replay.sample_id == second, Replay.verifier == wrong))
        again = asked or Replay(sample_id=second, verifier=wrong)
        again.status, again.reason, again.end_leaf = "overruled", "wrong_replay", OTHER_LEAF
        session.add(again)
    world.advance()
    assert len(world.slashes()) == 1, "a unit costs a verifier one penalty, and nothing stops for a second"


def test_assignment_before_warning_belongs_to_same_case(world: VerificationWorld) -> None:
    """A changed environment makes all results wrong that a verifier holds then."""
    world.challenge_first(0)
    (sample,) = world.samples()
    warn(world, timedelta(seconds=-1))
    wrong = overrule_one(world, world.unit_ids[0], sample.id)
    world.advance()
    assert world.outcomes()[wrong] == ("overruled", "same_case")
    assert world.slashes() == []
    assert world.provider(wrong).status == "active"


def test_verifier_confirming_false_segment_is_overruled(world: VerificationWorld) -> None:
    world.verifier()
    world.challenge_first(0)
    world.replay(asked_of(world, world.samples()[0].id), OTHER_LEAF)
    accomplice = asked_of(world, world.samples()[0].id)
    world.replay(accomplice, world.claim(world.unit_ids[0], 0))
    for _ in range(2):
        assert world.unit(world.unit_ids[0]).status == "checking"
        world.replay(asked_of(world, world.samples()[0].id), OTHER_LEAF)
    assert world.unit(world.unit_ids[0]).reason == "incorrect_computation"
    assert world.outcomes()[accomplice] == ("overruled", "suspended")
    assert replay_records(world)[accomplice] == (0, 0, 1)
    assert [slash.provider for slash in world.slashes()] == [world.nodes[0]]


@pytest.mark.parametrize("verifiers", [2], indirect=True)
def test_single_dissenter_is_unpaid_without_penalty(world: VerificationWorld) -> None:
    world.challenge_first(0)
    dissenting = world.asked()
    world.replay(dissenting, OTHER_LEAF)
    confirming = world.asked()
    world.replay(confirming, world.claim(world.unit_ids[0], 0))
    assert world.unit(world.unit_ids[0]).status == "verified"
    assert world.outcomes() == {dissenting: ("disagreed", None), confirming: ("agreed", None)}
    assert world.provider(dissenting).status == "active"
    assert replay_records(world).keys() == {confirming}


def test_verifier_with_sufficient_stake_is_selected_first(world: VerificationWorld) -> None:
    poor = [*world.verifiers, *(world.verifier() for _ in range(20))]
    rich = world.verifier()
    needed = 125 * (world.call(units.unit_facts, world.unit_ids[0]).gross_wei // world.spec.segments)
    world.execute(
        update(Stake).where(Stake.address.in_(poor)).values(stake_wei=needed - 1),
        update(Stake).where(Stake.address == rich).values(stake_wei=needed),
    )
    world.challenge_first(0)
    assert world.asked() == rich
    world.replay(rich, OTHER_LEAF)
    assert world.asked() in poor


@pytest.mark.parametrize("verifiers", [0], indirect=True)
def test_suspension_ends_and_score_stays_low(world: VerificationWorld) -> None:
    verifier = world.verifier()
    now = utc_now()
    world.call(providers.record_overruled, verifier, now, now)
    month = timedelta(seconds=DEVNET.suspension_seconds)
    review(world.database, DEVNET, now)
    assert world.provider(verifier).status == "demoted"
    world.call(record_repository.mark_all_for_review)
    review(world.database, DEVNET, now + month - timedelta(seconds=1))
    assert world.provider(verifier).status == "demoted"
    world.call(record_repository.mark_all_for_review)
    review(world.database, DEVNET, now + month)
    assert world.provider(verifier).status == "active"
    (found,) = world.call(providers.live_verifiers, world.settings, now)
    assert found.reliability_bps < 8_000
    assert found.weight == found.stake_wei * found.reliability_bps // 10_000


def test_verifier_staked_after_window_is_asked_last(world: VerificationWorld) -> None:
    """A wallet that the seed favours can be searched for, and staked then."""
    late, early = world.verifiers[:2], world.verifiers[2]
    later = utc_now() + timedelta(minutes=1)  # than the window, which is not committed yet
    world.execute(update(Stake).where(Stake.address.in_(late)).values(raised_at=later, stake_wei=10**27))
    world.challenge_first(0)
    assert world.asked() == early
    world.replay(early, OTHER_LEAF)
    assert world.asked() in late


def test_stake_age_counts_from_last_addition(world: VerificationWorld) -> None:
    event = world.final("ProviderStaking", "Staked", provider=world.verifiers[0], total=600 * 10**18)
    world.call(lambda session: lifecycle.on_stake_changed(DEVNET, session, event))
    found = {f.address: f for f in world.call(providers.live_verifiers, world.settings, utc_now())}
    at = datetime.fromtimestamp(event.timestamp, UTC)
    assert found[world.verifiers[0]].staked_before(at)
    assert not found[world.verifiers[0]].staked_before(at - timedelta(seconds=1))
    assert found[world.verifiers[1]].staked_before(at - timedelta(days=999))


def test_replay_kept_by_heartbeats_alone_is_lost(world: VerificationWorld) -> None:
    """Otherwise one staked verifier could delay units and jobs forever."""
    world.challenge_first(0)
    slow = world.asked()
    lease = world.pulled(slow, LeaseKind.REPLAY)
    longest = timedelta(seconds=world.settings.replay_seconds)
    world.execute(update(Lease).where(Lease.id == lease.id).values(created_at=utc_now() - longest))
    world.call(leases.heartbeat, lease.id, slow, lease.token, 1, 30.0)
    assert expiry.expire_due(world.database, utc_now()) == 0
    assert expiry.expire_replays(world.database, longest, utc_now() - timedelta(seconds=60)) == 0
    assert expiry.expire_replays(world.database, longest, utc_now() + timedelta(seconds=60)) == 1
    assert [(r.status, r.reason) for r in world.replays()] == [("abandoned", "replay_overdue")]
    world.advance()
    assert world.scalar(select(ProviderEpoch.lost).where(ProviderEpoch.provider == slow)) == 1
    assert world.asked() != slow
    with pytest.raises(LeaseLost), world.database.transaction() as session:
        leases.heartbeat(session, lease.id, slow, lease.token, 2, 30.0)
