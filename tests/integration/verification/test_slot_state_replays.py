"""Replays of units that start from a replica state held only by their node."""

from datetime import timedelta

import pytest
from kit.jobs.unit_results import Work
from kit.verification.verification_fixtures import VerificationWorld
from sqlalchemy import update

from market.domain.network import DEVNET
from market.jobs.models import Job
from market.platform.db.base import utc_now
from market.training.deliveries import service as deliveries
from market.training.leases.errors import ResultRefused
from market.training.leases.schemas import CompleteReveal, LeaseKind
from market.training.retention import service as retention
from market.training.units import slot_states as jobs
from market.training.units.models import Unit
from market.verification.decisions import state_release as verification
from training_gym.units.replica_state import fresh_slot_state, save_slot_state
from zoo_protocol.hashing import to_hex

NONE: list[int] = []  # segments

pytestmark = pytest.mark.usefixtures("verifiers")


@pytest.fixture
def node(world: VerificationWorld) -> str:
    return world.node()


def _second_unit(world: VerificationWorld, node: str) -> tuple[Work, int]:
    job_id = world.running([node], rounds=4)
    work = world.deliver(node)
    world.close_round(job_id)
    world.deliver(node)
    return work, world.units(job_id, round=1)[0].id


def _challenge(world: VerificationWorld, unit_id: int, segments: list[int]) -> None:
    """Sample these segments of the unit, and none of the job's other delivered units."""
    delivered = world.units(world.unit(unit_id).job_id, status="uploaded")
    world.challenge(dict.fromkeys((unit.id for unit in delivered), NONE) | {unit_id: segments})


@pytest.mark.parametrize("segment", [0, 1])
def test_sampled_replica_state_is_revealed_and_published(world: VerificationWorld, node: str, segment: int) -> None:
    first, unit_id = _second_unit(world, node)
    _challenge(world, unit_id, [segment])
    [sample] = world.samples()
    assert sample.status == "drawn"  # also of the first segment: no verifier could replay it without the state
    lease = world.reveal(node)
    assert lease is not None
    assert lease.task["slot_state_cid"] == first.slot_state_cid
    assert world.storage.get(first.slot_state_cid, max_bytes=2**24)
    replay = world.replay(world.asked(), world.claim(unit_id, segment))
    assert replay.task["slot_state_cid"] == first.slot_state_cid
    assert replay.task["restored_payload_cid"] is None
    assert (replay.task["state_cid"] is None) == (segment == 0)
    assert world.unit(unit_id).status == "verified"
    assert [unit.slot_state_public for unit in world.units(world.unit(unit_id).job_id)] == [True, False]


def test_unrequested_state_is_refused(world: VerificationWorld, node: str) -> None:
    """The market stores it unread, so a comparison could take it for the claimed end."""
    first, unit_id = _second_unit(world, node)
    _challenge(world, unit_id, [0])
    lease = world.pulled(node, LeaseKind.REVEAL)
    slot_state = world.storage.put(world.kept[node][str(first.slot_state_cid)], max_bytes=2**24).cid
    dataset = world.storage.put(b"somebody's dataset", max_bytes=100).cid
    shown = CompleteReveal(token=lease.token, state_cid=dataset, slot_state_cid=slot_state)
    with pytest.raises(ResultRefused) as refused:
        world.complete(lease, node, shown)
    assert (refused.value.field, refused.value.extra["reason"]) == ("state_cid", "wrong_state")
    world.complete(lease, node, CompleteReveal(token=lease.token, state_cid=None, slot_state_cid=slot_state))
    assert [(sample.status, sample.state_cid) for sample in world.samples()] == [("revealed", None)]


def test_public_state_is_not_requested_again(world: VerificationWorld, node: str) -> None:
    _, unit_id = _second_unit(world, node)
    assert world.publish(node)
    _challenge(world, unit_id, [0])
    assert [sample.status for sample in world.samples()] == ["revealed"]
    assert world.pull(node, LeaseKind.REVEAL) is None


def test_node_reporting_lost_replica_state_has_refused(world: VerificationWorld, node: str) -> None:
    _, unit_id = _second_unit(world, node)
    _challenge(world, unit_id, [0])
    world.give_up(node, LeaseKind.REVEAL, "slot_state_missing")
    [sample] = world.samples()
    assert sample.status == "drawn"  # it is asked again, until the deadline
    world.pass_deadline(sample.id)
    world.advance()
    assert (world.unit(unit_id).status, world.unit(unit_id).reason) == ("rejected", "refused_data")
    [slash] = world.slashes()
    assert (slash.provider, slash.offence) == (node, "refused_data")


def test_false_replica_state_cid_is_found_at_reveal(world: VerificationWorld, node: str) -> None:
    false = save_slot_state(fresh_slot_state(world.spec))
    cid = world.storage.put(false, max_bytes=2**20).cid
    job_id = world.running([node], rounds=4)
    first = world.work(node, slot_state_cid=cid)
    first.deliver()
    world.close_round(job_id)
    world.kept[node][cid] = world.kept[node][first.slot_state_cid]  # it goes on from the state that it has
    world.deliver(node)
    [unit] = world.units(job_id, round=1)
    assert unit.status == "uploaded"
    unit_id = unit.id
    _challenge(world, unit_id, [0])
    lease = world.pulled(node, LeaseKind.REVEAL)
    answer = CompleteReveal(token=lease.token, state_cid=None, slot_state_cid=cid)
    with pytest.raises(ResultRefused, match="does not have the digest") as refused:
        world.complete(lease, node, answer)
    assert (refused.value.field, refused.value.extra["reason"]) == ("slot_state_cid", "wrong_slot_state")
    [sample] = world.samples()
    world.pass_deadline(sample.id)
    world.advance()
    assert world.unit(unit_id).reason == "withheld_data"


def test_public_file_with_other_digest_is_not_state(world: VerificationWorld, node: str) -> None:
    """Otherwise its provider need not reveal the state, and a successor would start wrongly."""
    other = world.node()
    job_id = world.running([node, other], rounds=4)
    honest = world.deliver(other)
    cheat = world.work(node, slot_state_cid=honest.slot_state_cid)
    cheat.deliver()
    world.close_round(job_id)
    assert world.publish(other)
    public = {unit.slot: unit.slot_state_public for unit in world.units(job_id, round=0)}
    [following] = world.units(job_id, round=1, provider=node)
    assert public == {following.slot: False, 1 - following.slot: True}
    assert world.call(jobs.starts_privately, following.id)


def test_correct_state_under_other_cid_is_refused(world: VerificationWorld, node: str) -> None:
    first, unit_id = _second_unit(world, node)
    _challenge(world, unit_id, [0])
    lease = world.pulled(node, LeaseKind.REVEAL)
    for given in (None, world.storage.put(b"something else", max_bytes=2**20).cid):
        answer = CompleteReveal(token=lease.token, state_cid=None, slot_state_cid=given)
        with pytest.raises(ResultRefused, match=first.slot_state_cid):
            world.complete(lease, node, answer)


def _restored(world: VerificationWorld, node: str, monkeypatch: pytest.MonkeyPatch, first_leaf: bytes | None) -> int:
    monkeypatch.setattr(deliveries, "MAX_STALENESS", 0)  # one round late is too late
    others = [world.node() for _ in range(2)]
    job_id = world.running([node, *others], rounds=4)
    late = world.work(node)
    late.commit()
    world.deliver_all(others)
    world.change(Job, job_id, round_started_at=utc_now() - timedelta(days=1))
    world.close_round(job_id)
    late.complete()
    world.dispatch(job_id)
    work = world.work(node)
    assert work.lease.task["restored_payload_cid"] is not None
    if first_leaf is not None:
        work.leaves[0] = first_leaf
    work.deliver()
    return world.units(job_id, round=1, slot=0)[0].id


def test_false_first_leaf_of_restored_start_is_refuted(
    world: VerificationWorld, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit_id = _restored(world, node, monkeypatch, b"\1" * 32)
    _challenge(world, unit_id, [0])
    assert world.reveal(node) is not None
    for _ in range(2):
        assert world.unit(unit_id).status == "checking"
        world.give_up(world.asked(), LeaseKind.REPLAY, "start_state_mismatch")
    assert (world.unit(unit_id).status, world.unit(unit_id).reason) == ("rejected", "incorrect_computation")
    assert [replay.end_leaf for replay in world.replays()] == ["start_state_mismatch"] * 2


def test_later_segment_mismatch_is_verifier_fault(
    world: VerificationWorld, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit_id = _restored(world, node, monkeypatch, None)
    _challenge(world, unit_id, [1])
    lease = world.reveal(node)  # the market compares the state with its leaf, from what it now has
    assert lease is not None
    for _ in range(2):
        world.give_up(world.asked(), LeaseKind.REPLAY, "start_state_mismatch")
    replay = world.replay(world.asked(), world.claim(unit_id, 1))
    assert replay.task["restored_payload_cid"] == world.unit(unit_id).start_restored_payload_cid
    assert world.unit(unit_id).status == "verified"
    assert to_hex(b"\1" * 32) not in (world.unit(unit_id).leaves or [])


def test_revealed_state_is_released_after_dispute_period(world: VerificationWorld, node: str) -> None:
    first, unit_id = _second_unit(world, node)
    _challenge(world, unit_id, [1])
    assert world.reveal(node) is not None
    [state_cid] = [sample.state_cid for sample in world.samples()]
    assert state_cid is not None
    job_id = world.unit(unit_id).job_id
    unkept = update(Unit).values(slot_state_round=None)  # no kept checkpoint names its state
    world.execute(unkept)

    def release(after: timedelta) -> tuple[int, int]:
        now = utc_now() + after
        return (
            retention.unpin_states(world.database, world.storage, DEVNET, now),
            verification.unpin_expired_states(world.database, world.storage, DEVNET, now),
        )

    long_after = DEVNET.disputes.longest + timedelta(minutes=1)
    assert release(long_after) == (0, 0)  # the replay is under way
    world.replay(world.asked(), world.claim(unit_id, 1))
    assert world.unit(unit_id).status == "verified"
    world.close_round(job_id)
    world.execute(unkept)
    assert release(timedelta(0)) == (0, 0)  # it can still be disputed
    assert world.storage.is_pinned(state_cid)
    assert release(long_after) == (1, 1)
    assert not world.storage.is_pinned(state_cid)
    assert not world.storage.is_pinned(first.slot_state_cid)
    assert [unit.slot_state_public for unit in world.units(job_id, round=0)] == [False]
    assert release(long_after) == (0, 0)


def test_states_of_refuted_unit_are_kept(world: VerificationWorld, node: str) -> None:
    first, unit_id = _second_unit(world, node)
    _challenge(world, unit_id, [1])
    assert world.reveal(node) is not None
    [state_cid] = [sample.state_cid for sample in world.samples()]
    for _ in range(2):
        world.replay(world.asked(), "0x" + "77" * 32)
    assert world.unit(unit_id).reason == "incorrect_computation"
    now = utc_now() + DEVNET.disputes.longest + timedelta(minutes=1)
    retention.unpin_states(world.database, world.storage, DEVNET, now)
    verification.unpin_expired_states(world.database, world.storage, DEVNET, now)
    assert world.storage.is_pinned(state_cid or "")
    assert world.storage.is_pinned(first.slot_state_cid)
