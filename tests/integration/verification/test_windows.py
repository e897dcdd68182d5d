"""Commitment windows: roots, seeds, sampled segments and calls to the chain."""

import secrets
from dataclasses import replace
from datetime import timedelta

import pytest
from kit.verification.verification_fixtures import RATE, VerificationWorld
from sqlalchemy import select, update

from market.chain.service import RETRY_AFTER
from market.domain.lifecycle import IntentStatus
from market.domain.network import DEVNET
from market.jobs.models import Job
from market.platform.db.base import utc_now
from market.providers.models import Attestation, Provider
from market.training.units.models import Unit
from market.verification.samples.models import Comparison, Replay, Sample
from market.verification.samples.repository import verifiers_of_neighbours
from market.verification.windows import service as windows
from zoo_protocol import merkle
from zoo_protocol.hashing import to_hex
from zoo_protocol.payments.job_record import unit_leaf
from zoo_protocol.verification.rules import CLEAN_UNITS_PER_HALVING

BRONZE = DEVNET.tier("bronze")
pytestmark = pytest.mark.usefixtures("unit_ids")


def test_window_commits_delivered_units_before_seed(world: VerificationWorld) -> None:
    committed = world.commit_window()
    units = [world.unit(unit_id) for unit_id in world.unit_ids]
    leaves = [unit_leaf(u.job_id, u.round, u.slot, u.provider, u.trace_root or "", u.payload_hash or "") for u in units]
    assert committed.args["root"] == to_hex(merkle.root(leaves))
    assert [u.window_index for u in units] == [0, 1]
    world.advance()
    assert world.intents("latch_seed") == []  # the seed's block is not behind the head
    assert world.samples() == []
    world.latch(committed, to_hex(secrets.token_bytes(32)))
    (latch,) = world.intents("latch_seed")
    assert latch.arguments == [committed.args["root"]]
    assert {world.unit(unit_id).sampling_bps for unit_id in world.unit_ids} == {RATE}


@pytest.mark.parametrize(
    ("needs_gpus", "registered", "covered", "rate"),
    [
        (False, 0, 0, RATE // 2),  # on processors alone
        (False, 2, 2, RATE // 2),
        (False, 2, 1, RATE),
        (True, 0, 0, RATE),  # its tier has GPUs, and its quote says nothing of what computes
        (True, 0, BRONZE.gpus - 1, RATE),
        (True, 0, BRONZE.gpus, RATE // 2),
        (True, BRONZE.gpus + 1, BRONZE.gpus, RATE),
    ],
)
def test_fully_attested_provider_is_sampled_at_half_rate(
    world: VerificationWorld, needs_gpus: bool, registered: int, covered: int, rate: int
) -> None:
    world.network = replace(DEVNET, tiers=tuple(replace(tier, needs_gpus=needs_gpus) for tier in DEVNET.tiers))
    attested = world.unit(world.unit_ids[0])
    world.change(Provider, attested.provider, hardware={"gpu_count": registered})
    gpus = [str(number) for number in range(covered)]
    until = utc_now() + timedelta(hours=1)
    world.add(Attestation(address=attested.provider, measurement="0x" + "0a" * 32, expires_at=until, gpus=gpus))
    world.latch(world.commit_window(), to_hex(secrets.token_bytes(32)))
    rates = {world.unit(unit_id).provider: world.unit(unit_id).sampling_bps for unit_id in world.unit_ids}
    assert rates.pop(attested.provider) == rate
    assert set(rates.values()) == {RATE}


@pytest.mark.parametrize("by", ["attestation", "settled units"])
def test_work_after_window_lowers_no_rate(world: VerificationWorld, by: str) -> None:
    """The seed is public before sampling, so a sampled node must not lower its rate."""
    unit = world.unit(world.unit_ids[0])
    committed = world.commit_window()
    with world.database.transaction() as session:
        if by == "attestation":
            until = utc_now() + timedelta(hours=1)
            session.add(Attestation(address=unit.provider, measurement="0x" + "0a" * 32, expires_at=until, gpus=[]))
        else:
            done = {"status": "verified", "settled_at": utc_now(), "start_checkpoint_cid": unit.start_checkpoint_cid}
            for round_ in range(1, 1 + CLEAN_UNITS_PER_HALVING):
                session.add(Unit(job_id=unit.job_id, round=round_, slot=0, provider=unit.provider, **done))
    world.latch(committed, to_hex(secrets.token_bytes(32)))
    assert world.unit(world.unit_ids[0]).sampling_bps == RATE
    (later,) = world.units(world.second_job(unit.provider))
    world.latch(world.commit_window(), to_hex(secrets.token_bytes(32)))
    assert world.unit(later.id).sampling_bps == RATE // 2  # for the next window it counts


def test_outlier_flag_after_window_raises_rate(world: VerificationWorld) -> None:
    unit = world.unit(world.unit_ids[0])
    committed = world.commit_window()
    world.change(Unit, unit.id, doubts=["norm"])
    world.latch(committed, to_hex(secrets.token_bytes(32)))
    assert world.unit(world.unit_ids[0]).sampling_bps == 2 * RATE


def test_rescheduled_seed_is_recorded_again(world: VerificationWorld) -> None:
    committed = world.commit_window()
    world.chain.head = committed.args["seedBlock"] + 1
    world.advance()
    later = world.final("WorkWindows", "SeedRescheduled", id=0, seedBlock=world.chain.head + 2)
    world.call(windows.on_seed_rescheduled, later)
    world.advance()
    assert len(world.intents("latch_seed")) == 1
    world.chain.head += 3
    world.advance()
    assert len(world.intents("latch_seed")) == 2


def test_work_during_pending_root_joins_next_window(world: VerificationWorld) -> None:
    # On a slow machine ten seconds would be over, and the next window close.
    world.settings = world.settings.model_copy(update={"window_seconds": 600.0})
    world.advance()
    late_node = world.node()
    late_job = world.delivered_job([late_node])
    world.advance()
    assert len(world.windows()) == 1
    world.commit_window()
    world.advance()
    assert len(world.windows()) == 2
    assert world.units(late_job)[0].window_id == world.windows()[1].id


def test_events_of_unknown_or_moved_windows_are_ignored(world: VerificationWorld) -> None:
    committed = world.commit_window()
    latched = world.latch(committed, to_hex(secrets.token_bytes(32)))
    before = [(w.status, w.seed, w.commit_tx) for w in world.windows()], [s.id for s in world.samples()]
    foreign = world.final("WorkWindows", "WindowCommitted", id=9, root="0x" + "12" * 32, leafCount=1, seedBlock=1)
    reseeded = world.final("WorkWindows", "SeedLatched", id=0, seed="0x" + "34" * 32)
    with world.database.transaction() as session:
        for event in (committed, foreign):
            windows.on_window_committed(session, event)
        for event in (latched, reseeded):
            windows.on_seed_latched(session, event)
        windows.on_seed_rescheduled(session, world.final("WorkWindows", "SeedRescheduled", id=0, seedBlock=1))
    world.advance()
    assert ([(w.status, w.seed, w.commit_tx) for w in world.windows()], [s.id for s in world.samples()]) == before


def test_refused_chain_call_is_retried(world: VerificationWorld) -> None:
    world.advance()
    world.put_intents(IntentStatus.REVERTED, timedelta(0))
    world.advance()
    assert len(world.intents("commit_window")) == 1  # not at once
    world.put_intents(IntentStatus.REVERTED, 2 * RETRY_AFTER)
    world.advance()
    world.advance()
    first, second = world.intents("commit_window")
    assert first.arguments == second.arguments


def test_neighbouring_segments_go_to_different_verifiers(world: VerificationWorld, verifiers: list[str]) -> None:
    """The second segment's start leaf is the claimed end of the first."""
    world.execute(update(Job).values(sampling_bps=10_000))
    world.latch(world.commit_window(), to_hex(secrets.token_bytes(32)))
    for node in world.nodes:
        while world.reveal(node):
            pass
    asked: dict[int, list[str]] = {}
    segments = {sample.id: sample.unit_id for sample in world.samples()}
    for replay in world.replays():
        asked.setdefault(segments[replay.sample_id or 0], []).append(replay.verifier)
    assert set(asked) == set(world.unit_ids)
    assert all(len(set(found)) == len(found) == 2 for found in asked.values())


def test_neighbouring_segments_go_to_different_cross_class_verifiers(world: VerificationWorld) -> None:
    """The second segment's start state is the first one's end, which could be sent back."""
    abroad = {world.verifier(environment="0x" + "ee" * 32) for _ in range(2)}
    world.execute(update(Job).values(sampling_bps=10_000))
    world.latch(world.commit_window(), to_hex(secrets.token_bytes(32)))
    for node in world.nodes:
        while world.reveal(node):
            pass
    world.execute(update(Sample).values(reveal_deadline_at=utc_now() - timedelta(seconds=1)))
    world.advance()
    asked = world.tuples(select(Comparison.unit_id, Comparison.segment, Replay.verifier).join(Replay))
    assert {(unit_id, segment) for unit_id, segment, _ in asked} == {
        (unit, n) for unit in world.unit_ids for n in range(2)
    }
    for unit_id, segment, verifier in asked:
        assert world.call(verifiers_of_neighbours, unit_id, 1 - segment) == {verifier}
    assert len({(unit_id, verifier) for unit_id, _, verifier in asked}) == len(asked)
    assert {verifier for *_, verifier in asked} == abroad
