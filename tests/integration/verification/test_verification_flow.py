"""Verification on a real database: windows, samples, replays, slashes, duplicates."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from kit.jobs.jobs_fixtures import at_once
from kit.verification.verification_fixtures import VerificationWorld

from market.chain.service import RETRY_AFTER
from market.domain.lifecycle import IntentStatus, JobStatus
from market.domain.network import DEVNET
from market.jobs import repository as jobs_repository
from market.platform.db.base import utc_now
from market.platform.http.errors import InvalidSignature
from market.providers import lifecycle
from market.providers import service as providers
from market.training.leases import expiry
from market.training.leases.errors import ReplayCommitted, ReplayMismatch, ReplayNotCommitted
from market.training.leases.schemas import CompleteReplay, LeaseKind
from market.training.units.models import Unit
from market.training.units.service import unit_facts
from market.verification.decisions.dispute_routing import Adjudicator
from market.verification.decisions.unit_outcomes import decide_units
from market.verification.penalties import service as penalties
from market.verification.penalties.models import Slash
from market.verification.replays.start_states import request_states
from market.verification.windows import service as windows
from zoo_protocol.content.cid import digest_of
from zoo_protocol.hashing import to_hex

OTHER_LEAF = "0x" + "ee" * 32
THIRD_LEAF = "0x" + "dd" * 32
pytestmark = pytest.mark.usefixtures("unit_ids", "verifiers")


def statuses(world: VerificationWorld, unit_ids: list[int]) -> list[tuple[str, str | None]]:
    return [(unit.status, unit.reason) for unit in map(world.unit, unit_ids)]


def test_honest_unit_passes_after_segment_replay(world: VerificationWorld) -> None:
    world.challenge_first(1)
    assert statuses(world, world.unit_ids) == [("checking", None), ("verified", None)]  # no sample of the second
    assert world.reveal(world.nodes[1]) is None
    revealed = world.reveal(world.nodes[0])
    assert revealed is not None
    assert revealed.task["segment"] == 1
    lease = world.replay(world.asked(), world.claim(world.unit_ids[0], 1))
    assert lease.task["start_leaf"] == world.claim(world.unit_ids[0], 0)
    assert lease.task["state_cid"] == world.samples()[0].state_cid
    assert "end_leaf" not in lease.task
    assert statuses(world, world.unit_ids) == [("verified", None)] * 2
    assert [window.status for window in world.windows()] == ["decided"]
    assert world.intents("slash") == []


def test_first_segment_needs_no_provider_state(world: VerificationWorld) -> None:
    world.challenge_first(0)
    assert world.reveal(world.nodes[0]) is None
    lease = world.replay(world.asked(), world.claim(world.unit_ids[0], 0))
    assert lease.task["state_cid"] is None
    assert world.unit(world.unit_ids[0]).status == "verified"


def test_two_agreeing_verifiers_slash_dishonest_provider_once(world: VerificationWorld) -> None:
    world.challenge_first(0)
    other_job = world.second_job(world.nodes[0])  # delivered, but not checked yet
    first = world.asked()
    world.replay(first, OTHER_LEAF)
    assert world.intents("slash") == []  # one verifier alone cannot refute a unit
    assert world.unit(world.unit_ids[0]).status == "checking"
    second = world.asked()
    assert second != first
    world.replay(second, OTHER_LEAF)

    assert statuses(world, world.unit_ids) == [("rejected", "incorrect_computation"), ("verified", None)]
    assert [(u.status, u.reason) for u in world.units(other_job)] == [("rejected", "provider_jailed")]
    assert (world.provider(world.nodes[0]).status, world.provider(world.nodes[0]).reason) == (
        "jailed",
        "incorrect_computation",
    )
    assert world.nodes[0] not in world.call(jobs_repository.slot_holders)
    (slash,), (intent,) = world.slashes(), world.intents("slash")
    assert intent.arguments == [world.nodes[0], "2", slash.evidence]
    assert intent.amount == 1000 * 10**18  # all that is at stake counts towards the limits of the hot key
    assert slash.evidence == to_hex(digest_of(slash.evidence_cid))
    for pending in (IntentStatus.QUEUED, IntentStatus.BROADCAST, IntentStatus.MINED, IntentStatus.FINAL):
        world.put_intents(pending, 100 * RETRY_AFTER)  # however slow the chain is, it is asked once
        world.advance()
    evidence = json.loads(world.storage.get(slash.evidence_cid, max_bytes=2**20))
    assert evidence["unit"]["leaves"][1] == world.claim(world.unit_ids[0], 0)
    assert [(r["verifier"], r["end_leaf"]) for r in evidence["replays"]] == [(first, OTHER_LEAF), (second, OTHER_LEAF)]

    slashed = world.final(
        "ProviderStaking", "Slashed", provider=world.nodes[0], offence=2, amount=500, evidence=slash.evidence
    )
    for _ in range(2):
        world.advance()
        world.call(penalties.on_slashed, slashed)
    assert [(s.amount_wei, s.tx) for s in world.slashes()] == [(500, slashed.tx_hash)]
    assert len(world.intents("slash")) == 1


def test_provider_caught_twice_at_once_is_slashed_once(world: VerificationWorld) -> None:
    other_job = world.second_job(world.nodes[0])
    caught = [world.unit_ids[0], world.units(other_job)[0].id]
    world.challenge({caught[0]: [1], caught[1]: [1], world.unit_ids[1]: []})
    for sample in world.samples():
        world.pass_deadline(sample.id)
    request_states(world.database, storable=True)  # both fail before either is acted upon
    assert [sample.status for sample in world.samples()] == ["failed", "failed"]
    decide = partial(decide_units, world.database, world.storage, Adjudicator(None, True))
    assert at_once([decide] * 2) == [None] * 2
    assert len(world.slashes()) == len(world.intents("slash")) == 1
    assert {reason for _, reason in statuses(world, caught)} == {"withheld_data", "provider_jailed"}


def test_slashed_provider_is_not_slashed_again(world: VerificationWorld) -> None:
    world.challenge_first(1)
    world.call(lifecycle.jail, world.nodes[0], "incorrect_computation")
    world.pass_deadline(world.samples()[0].id)
    world.advance()
    assert statuses(world, world.unit_ids)[0] == ("rejected", "withheld_data")
    assert world.intents("slash") == []


def test_node_jailed_for_downtime_is_still_slashed_fully(world: VerificationWorld) -> None:
    """A 5 % downtime slash must not replace a 50 % slash."""
    world.challenge_first(1)
    with world.database.transaction() as session:
        lifecycle.on_stake_changed(DEVNET, session, world.final("ProviderStaking", "Jailed", provider=world.nodes[0]))
    world.pass_deadline(world.samples()[0].id)
    world.advance()
    assert statuses(world, world.unit_ids)[0] == ("rejected", "withheld_data")
    (intent,) = world.intents("slash")
    assert intent.arguments[:2] == [world.nodes[0], "4"]


def test_slash_before_release_reduces_no_later_slash(world: VerificationWorld) -> None:
    def deliver(event: str) -> None:
        with world.database.transaction() as session:
            lifecycle.on_stake_changed(DEVNET, session, world.final("ProviderStaking", event, provider=world.nodes[0]))

    def caught(unit_id: int) -> tuple[str, str | None]:
        world.pass_deadline(world.samples()[-1].id)
        world.advance()
        return statuses(world, [unit_id])[0]

    world.challenge_first(1)
    assert caught(world.unit_ids[0]) == ("rejected", "withheld_data")
    assert world.provider(world.nodes[0]).reason == "withheld_data"
    deliver("Jailed")  # the first penalty's events on chain
    deliver("Released")
    (unit,) = world.units(world.second_job(world.nodes[0]))
    world.challenge({unit.id: [1]})
    deliver("Jailed")  # for downtime
    assert caught(unit.id) == ("rejected", "withheld_data")
    assert [intent.arguments[:2] for intent in world.intents("slash")] == [[world.nodes[0], "4"]] * 2


def test_contradicting_verifiers_slash_no_provider(world: VerificationWorld) -> None:
    world.challenge_first(0)
    world.replay(world.asked(), OTHER_LEAF)
    world.replay(world.asked(), THIRD_LEAF)
    assert world.unit(world.unit_ids[0]).status == "checking"
    world.replay(world.asked(), OTHER_LEAF)
    assert world.unit(world.unit_ids[0]).reason == "incorrect_computation"


def test_unserved_state_costs_data_withholding_penalty(world: VerificationWorld) -> None:
    world.challenge_first(1)
    (sample,) = world.samples()
    world.pass_deadline(sample.id)
    world.advance()
    assert statuses(world, world.unit_ids)[0] == ("rejected", "withheld_data")
    (intent,) = world.intents("slash")
    assert intent.arguments[:2] == [world.nodes[0], "4"]
    assert world.replays() == []


def test_absent_provider_is_asked_until_deadline(world: VerificationWorld) -> None:
    world.challenge_first(1)
    lost = world.pulled(world.nodes[0], LeaseKind.REVEAL)
    world.age(lost.id)
    expiry.expire_due(world.database, utc_now())
    world.advance()
    world.give_up(world.nodes[0], LeaseKind.REVEAL, "input_missing")
    assert world.reveal(world.nodes[0]) is not None
    world.replay(world.asked(), world.claim(world.unit_ids[0], 1))
    assert world.unit(world.unit_ids[0]).status == "verified"


def test_diverging_replays_count_like_other_mismatches(world: VerificationWorld) -> None:
    world.challenge_first(0)
    world.give_up(world.asked(), LeaseKind.REPLAY, "diverged")
    assert world.unit(world.unit_ids[0]).status == "checking"
    world.give_up(world.asked(), LeaseKind.REPLAY, "diverged")
    assert world.unit(world.unit_ids[0]).reason == "incorrect_computation"


@pytest.mark.parametrize("verifiers", [2], indirect=True)
def test_abandoned_replay_moves_and_returns_without_alternative(world: VerificationWorld) -> None:
    world.challenge_first(0)
    first = world.asked()
    silent = world.pulled(first, LeaseKind.REPLAY)
    world.commit_replay(first, silent, OTHER_LEAF, "0x" + "01" * 32)
    world.age(silent.id)
    expiry.expire_due(world.database, utc_now())
    world.advance()
    second = world.asked()
    assert second != first
    world.give_up(second, LeaseKind.REPLAY, "out_of_memory")
    again = world.asked()
    world.replay(again, world.claim(world.unit_ids[0], 0))
    assert world.unit(world.unit_ids[0]).status == "verified"
    assert world.intents("slash") == []


@pytest.mark.parametrize("verifiers", [0], indirect=True)
def test_unit_waits_unpaid_when_no_verifier_suits(world: VerificationWorld) -> None:
    world.verifier(environment="0x" + "99" * 32)  # cannot compare bits with this job's nodes
    world.challenge_first(0)
    assert world.replays() == []
    assert world.unit(world.unit_ids[0]).status == "checking"
    late = world.verifier()
    world.advance()
    assert world.asked() == late


def test_result_counts_only_as_it_was_committed(world: VerificationWorld) -> None:
    world.challenge_first(0)
    verifier = world.asked()
    lease = world.pulled(verifier, LeaseKind.REPLAY)
    claim, salt = world.claim(world.unit_ids[0], 0), "0x" + "05" * 32

    def reveal(leaf: str) -> Callable[[], None]:
        return lambda: world.complete(lease, verifier, CompleteReplay(token=lease.token, end_leaf=leaf, salt=salt))

    with pytest.raises(ReplayNotCommitted):
        reveal(claim)()
    with pytest.raises(InvalidSignature, match="recovers to"):
        world.commit_replay(verifier, lease, claim, salt, signer=world.unit(world.unit_ids[0]).provider)
    world.commit_replay(verifier, lease, OTHER_LEAF, salt)
    world.commit_replay(verifier, lease, OTHER_LEAF, salt)  # a repeated request
    with pytest.raises(ReplayCommitted):
        world.commit_replay(verifier, lease, claim, salt)
    with pytest.raises(ReplayMismatch):
        reveal(claim)()
    assert world.samples()[0].status == "revealed"
    for _ in range(2):
        reveal(OTHER_LEAF)()
    assert [replay.status for replay in world.replays()] == ["disagreed"]


def test_late_results_change_nothing(world: VerificationWorld) -> None:
    other_job = world.second_job(world.nodes[0])
    other = world.units(other_job)[0].id
    world.challenge({world.unit_ids[0]: [1], other: [0], world.unit_ids[1]: []})
    withheld = next(sample for sample in world.samples() if sample.segment == 1)
    world.pass_deadline(withheld.id)
    world.advance()
    assert world.unit(other).reason == "provider_jailed"
    world.replay(world.asked(), world.claim(other, 0))
    assert world.unit(other).status == "rejected"
    assert sorted(sample.status for sample in world.samples()) == ["dropped", "failed"]
    assert [window.status for window in world.windows()] == ["decided"]


def test_trained_job_settles_after_last_decision(world: VerificationWorld) -> None:
    job_id = world.unit(world.unit_ids[0]).job_id
    with world.database.transaction() as session:
        job = jobs_repository.lock_job(session, job_id)
        assert job is not None
        job.status = JobStatus.VERIFYING  # as after its last round
        job.redundancy = 0
    world.challenge_first(0)
    assert world.read(job_id).status == "verifying"
    world.wakes.seen.clear()
    world.replay(world.asked(), world.claim(world.unit_ids[0], 0))
    assert world.read(job_id).status == "settling"
    assert ("settlement.settle", ()) in world.wakes.seen


def test_unverifiable_older_work_gives_no_credit(world: VerificationWorld) -> None:
    def clean(times_as_dear: int = 1) -> int:
        with world.database.transaction() as session:
            unit = unit_facts(session, world.unit_ids[0])
            return windows.clean_units(session, replace(unit, gross_wei=times_as_dear * unit.gross_wei))

    with world.database.transaction() as session:
        unit = session.get_one(Unit, world.unit_ids[0])
        provider, job_id, unit.decided_at, unit.settled_at = unit.provider, unit.job_id, utc_now(), utc_now()
    assert clean() == 1
    assert (clean(2), clean(3)) == (1, 0)  # a history of units that cost less than half says nothing
    for since, expected in ((utc_now(), 0), (None, 1)):
        world.call(providers.record_disputed, provider, since)
        assert clean() == expected
    document = {"offence": "incorrect_computation", "evidence": "0x" + "ab" * 32, "evidence_cid": "cid"}
    world.add(Slash(job_id=job_id, unit_id=world.unit_ids[0], provider=provider, **document))
    assert clean() == 0
