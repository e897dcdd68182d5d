"""States revealed late, refused or missing: consequences for their providers."""

import json
from datetime import timedelta

import pytest
from kit.verification.replay_records import seen
from kit.verification.verification_fixtures import VerificationWorld, move_request
from sqlalchemy import select, update

from market.domain.lifecycle import ProviderStatus
from market.domain.network import MAINNET
from market.domain.nodes.uptime import epoch_of
from market.domain.verification.sampling import OFFENCE_IDS
from market.platform.db.base import utc_now
from market.platform.events.models import JobEventRow
from market.providers import models as providers_models
from market.providers.models import Provider, ProviderEpoch
from market.training.leases.schemas import LeaseKind
from market.verification.penalties import service as penalties_service
from market.verification.penalties.models import LatePenalty
from market.verification.samples.models import LateState, Sample

pytestmark = pytest.mark.usefixtures("nodes", "verifiers")


def late_states(world: VerificationWorld) -> list[LateState]:
    return world.all(select(LateState).order_by(LateState.sample_id))


def penalties(world: VerificationWorld) -> list[LatePenalty]:
    return world.all(select(LatePenalty).order_by(LatePenalty.id))


def lost_by_day(world: VerificationWorld, node: str) -> dict[int, int]:
    mine = select(ProviderEpoch.epoch, ProviderEpoch.lost).where(ProviderEpoch.provider == node, ProviderEpoch.lost > 0)
    return dict(world.call(lambda session: session.execute(mine).tuples().all()))


def events(world: VerificationWorld, kind: str) -> list[dict[str, object]]:
    return world.all(select(JobEventRow.data).where(JobEventRow.kind == kind).order_by(JobEventRow.id))


def show_late(world: VerificationWorld, node: str, job_id: str, *, days_ago: int = 0) -> int:
    (unit,) = world.units(job_id, provider=node)
    world.challenge({unit.id: [1]})
    (sample,) = [sample for sample in world.samples() if sample.unit_id == unit.id]
    world.pass_due(sample.id)
    world.advance()
    ago = utc_now() - timedelta(days=days_ago, seconds=1)
    world.execute(update(LateState).where(LateState.sample_id == sample.id).values(due_at=ago))
    assert world.reveal(node) is not None
    world.replay(world.asked(), world.claim(unit.id, 1))
    return unit.id


def test_late_state_is_replayed_paid_and_recorded(world: VerificationWorld) -> None:
    node = world.nodes[0]
    job_id = world.delivered_job([node])
    unit_id = show_late(world, node, job_id)
    assert (world.unit(unit_id).status, world.unit(unit_id).reason) == ("verified", None)
    [late] = late_states(world)
    assert (late.provider, late.booked) == (node, "counted")
    assert late.shown_at is not None
    assert late.due_at < late.shown_at
    noted, shown = events(world, "late")
    assert (noted["reason"], noted["segment"], "shown_at" in noted) == ("late_data", 1, False)
    assert shown["shown_at"] == late.shown_at.isoformat()
    assert lost_by_day(world, node) == {epoch_of(late.due_at.timestamp()): 1}
    assert (penalties(world), world.slashes(), world.intents("slash")) == ([], [], [])


def test_timely_state_is_not_recorded_as_late(world: VerificationWorld) -> None:
    (unit,) = world.units(world.delivered_job(world.nodes[:1]))
    world.challenge({unit.id: [1]})
    world.advance()
    assert world.reveal(world.nodes[0]) is not None
    world.replay(world.asked(), world.claim(unit.id, 1))
    assert (late_states(world), events(world, "late"), lost_by_day(world, world.nodes[0])) == ([], [], {})


def test_late_state_counts_only_for_verified_unit(world: VerificationWorld) -> None:
    (unit,) = world.units(world.delivered_job(world.nodes[:1]))
    world.challenge({unit.id: [1]})
    (sample,) = world.samples()
    world.pass_due(sample.id)
    world.reveal(world.nodes[0])  # before any sweep noticed the deadline
    [late] = late_states(world)
    assert (late.booked, lost_by_day(world, world.nodes[0])) == (None, {})
    for _ in range(2):
        world.replay(world.asked(), "0x" + "ee" * 32)
    assert world.unit(unit.id).status == "rejected"
    world.advance()
    [late] = late_states(world)
    assert (late.booked, lost_by_day(world, world.nodes[0])) == ("unit_rejected", {})


@pytest.mark.long
def test_third_late_day_slashes_once_for_lateness_only(world: VerificationWorld) -> None:
    node = world.nodes[0]
    units = []
    for days_ago in (2, 2, 1, 0):
        job_id = world.second_job(node) if units else world.delivered_job([node])
        assert penalties(world) == []
        units.append(show_late(world, node, job_id, days_ago=days_ago))
    assert [late.booked for late in late_states(world)] == ["counted", "same_day", "counted", "counted"]
    assert set(lost_by_day(world, node).values()) == {1}
    [penalty] = penalties(world)
    [intent] = world.intents("slash")
    assert intent.arguments[:3] == [node, str(OFFENCE_IDS["bandwidth_violation"]), penalty.evidence]
    document = json.loads(world.storage.get(penalty.evidence_cid, max_bytes=2**16))
    counted = [world.unit(units[number]).job_id for number in (0, 2, 3)]
    assert [late["job_id"] for late in document["late"]] == counted
    assert all(late["due_at"] < late["shown_at"] for late in document["late"])
    [slash] = events(world, "slash")
    assert (slash["reason"], slash["provider"]) == ("bandwidth_violation", node)

    world.advance()
    event = world.final("ProviderStaking", "Slashed", provider=node, offence=3, amount=50, evidence=penalty.evidence)
    world.call(penalties_service.on_slashed, event)
    [penalty] = penalties(world)
    assert (penalty.amount_wei, penalty.tx) == (50, event.tx_hash)
    assert len(world.intents("slash")) == 1
    assert world.slashes() == []  # nothing of it is in a job's record
    assert world.call(penalties_service.job_slashes, penalty.job_id) == []


@pytest.mark.long
def test_jailed_late_node_is_slashed_for_data_withholding(world: VerificationWorld) -> None:
    node = world.nodes[0]
    job_id = world.delivered_job([node])
    for days_ago in (2, 1, 0):
        show_late(world, node, job_id, days_ago=days_ago)
        job_id = world.second_job(node)
    assert len(penalties(world)) == 1
    world.execute(update(Provider).where(Provider.address == node).values(status=ProviderStatus.JAILED))
    (unit,) = world.units(job_id, provider=node)
    world.challenge({unit.id: [1]})
    world.pass_deadline(world.samples()[-1].id)
    world.advance()
    assert [(slash.provider, slash.offence) for slash in world.slashes()] == [(node, "withheld_data")]


def test_final_refusal_counts_as_refusal(world: VerificationWorld, unit_ids: list[int]) -> None:
    world.challenge_first(1)
    (sample,) = world.samples()
    world.give_up(world.nodes[0], LeaseKind.REVEAL, "input_missing")
    world.give_up(world.nodes[0], LeaseKind.REVEAL, "node_stopping")
    world.give_up(world.nodes[0], LeaseKind.REVEAL, "slot_state_missing")
    world.pass_deadline(sample.id)
    world.advance()
    assert (world.unit(unit_ids[0]).status, world.unit(unit_ids[0]).reason) == ("rejected", "refused_data")
    [slash] = world.slashes()
    assert (slash.provider, slash.offence) == (world.nodes[0], "refused_data")
    document = json.loads(world.storage.get(slash.evidence_cid, max_bytes=2**20))
    assert (document["kind"], document["offence"]) == ("zoo-evidence/5", "refused_data")
    assert document["refusal"] == "slot_state_missing"
    [intent] = world.intents("slash")
    assert intent.arguments[1] == "7"


def test_provider_has_withheld_only_after_twelve_hours(world: VerificationWorld, unit_ids: list[int]) -> None:
    world.network = MAINNET
    world.challenge_first(1)
    for hours, status, slashed in ((11, "drawn", []), (1, "failed", [world.nodes[0]])):
        with world.database.transaction() as session:
            move_request(session.scalars(select(Sample)).one(), timedelta(hours=-hours))
        world.advance()
        assert len(late_states(world)) == 1
        assert [sample.status for sample in world.samples()] == [status]
        assert [slash.provider for slash in world.slashes()] == slashed


def test_stopped_node_has_refused_nothing(world: VerificationWorld, unit_ids: list[int]) -> None:
    world.challenge_first(1)
    (sample,) = world.samples()
    world.give_up(world.nodes[0], LeaseKind.REVEAL, "input_missing")
    world.give_up(world.nodes[0], LeaseKind.REVEAL, "node_stopping")
    world.pass_deadline(sample.id)
    world.advance()
    assert [slash.offence for slash in world.slashes()] == ["withheld_data"]


def test_outage_makes_no_node_late_and_extends_deadlines(world: VerificationWorld, unit_ids: list[int]) -> None:
    world.challenge_first(1)
    (sample,) = world.samples()
    world.pass_due(sample.id)
    seen(world, world.nodes[0], 30, 0)
    world.advance()
    assert late_states(world) == []
    (sample,) = world.samples()
    assert sample.reveal_deadline_at is not None
    assert sample.reveal_until_at is not None
    assert utc_now() < sample.reveal_deadline_at < sample.reveal_until_at

    world.pass_due(sample.id)
    seen(world, world.nodes[0], *range(30))
    world.advance()
    assert len(late_states(world)) == 1
    world.execute(update(providers_models.HeartbeatHour).values(minutes=0))  # down after that
    seen(world, world.nodes[0], 30, 0)
    world.pass_deadline(sample.id)
    world.advance()
    (sample,) = world.samples()
    assert (sample.status, world.slashes()) == ("drawn", [])
    assert sample.reveal_until_at is not None
    assert sample.reveal_until_at > utc_now() + timedelta(seconds=60)
    assert world.reveal(world.nodes[0]) is not None
    assert [late.shown_at is not None for late in late_states(world)] == [True]
