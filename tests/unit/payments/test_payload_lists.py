"""Payloads that aggregation records leave out; only those that were surely there are found."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from kit.payments.receipt_world import World

from training_gym.aggregate.robust import WEIGHT_ONE
from zoo_compute.audit.payload_lists import units_left_out
from zoo_compute.audit.receipt import verify_job
from zoo_protocol.payments.job_record import PAYLOAD_LOST, AggregationRecord, PlacedPayload, UnitRecord

Place = tuple[int, int]
OTHERS: list[list[Place]] = [[(round_, 1)] for round_ in range(8)]
"""Records of rounds that list one other replica."""
settled_job = cache(World)


def leave_out_first(world: World) -> None:
    """Let the first round's record list no payload; the rest of the job follows from it."""
    before, after = (
        AggregationRecord.from_bytes(world.files[world.manifest(round_).aggregation or ""]) for round_ in (1, 2)
    )
    world.relink(1, aggregation=world.put(replace(before, payloads=[]).to_bytes()))
    parent = world.record.checkpoints[1].cid
    world.relink(2, parent=parent, aggregation=world.put(replace(after, checkpoint=parent).to_bytes()))
    *units, last = world.record.units
    world.change("record", units=[*units, replace(last, start_checkpoint_cid=parent)])


def test_payload_left_out_is_found() -> None:
    world: Any = World()
    leave_out_first(world)
    [finding] = verify_job(world.job_id, world, world).findings
    assert (finding.code, finding.where) == ("payload_left_out", "units[0/0].payload_cid")
    assert finding.expected.startswith(f"{world.record.units[0].payload_cid} in the record of round 1 or before")
    assert finding.found == "in none; ask the market why, its provider when it came"


@pytest.mark.parametrize("outcome", [5, 6], ids=["upheld", "acquitted"])
def test_payload_in_dispute_is_excused(outcome: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    leave_out_first(world)
    monkeypatch.setattr(world, "dispute_outcomes", lambda unit_key: {outcome})
    assert (world.codes() == set()) == (outcome == 6)


def test_payload_lost_by_storage_is_excused() -> None:
    world = World()
    leave_out_first(world)
    world.change_unit(reason=PAYLOAD_LOST)
    assert world.codes() == set()


def left_out(
    units: list[Place],
    listed: list[list[Place]],
    round_delay: int = 0,
    starts: Callable[[int], set[str]] = lambda round_: {str(began) for began in range(round_ + 1)},
    attempt: str = "",
) -> list[tuple[Place, int]]:
    """Return the places of units left out, each with the round that had to list it.

    All ``units`` are verified, and start from the checkpoints of their rounds.

    Args:
        attempt: names the attempts at units whose payloads are listed.
    """
    world = settled_job()
    made = world.record.units[0]

    def unit(round_: int, slot: int) -> UnitRecord:
        payload_cid = f"{round_}/{slot}"
        return replace(made, round=round_, slot=slot, start_checkpoint_cid=str(round_), payload_cid=payload_cid)

    def payload(round_: int, slot: int) -> PlacedPayload:
        return PlacedPayload(slot, round_, slot, f"{round_}/{slot}{attempt}", WEIGHT_ONE, "included")

    record = replace(world.record, units=[unit(*place) for place in units])
    done = [
        AggregationRecord(world.job_id, round_, "", WEIGHT_ONE, [payload(*place) for place in places])
        for round_, places in enumerate(listed)
    ]
    found = units_left_out(record, done, starts, round_delay)
    return [((one.round, one.slot), round_) for one, round_ in found]


@pytest.mark.parametrize("arrived", [1, 2, 4, 5])
def test_late_payload_is_listed_later(arrived: int) -> None:
    listed = [[*places, (0, 0)] if round_ == arrived else places for round_, places in enumerate(OTHERS)]
    assert left_out([(0, 0), (4, 0)], listed) == []
    assert left_out([(0, 0), (4, 0)], OTHERS) == [((0, 0), 5)]


@pytest.mark.parametrize(("following", "due"), [(1, 2), (4, 5), (5, None), (7, None)])
def test_next_unit_bounds_arrival(following: int, due: int | None) -> None:
    """Four rounds after its own a payload is too late, and no later round follows the last one."""
    found = [place for place in left_out([(0, 0), (following, 0)], OTHERS) if place[0] == (0, 0)]
    assert found == ([] if due is None else [((0, 0), due)])


@pytest.mark.parametrize("delay", [0, 1])
def test_overlapped_unit_proves_no_arrival(delay: int) -> None:
    """Its node may upload the payload before it while it computes."""
    assert bool(left_out([(0, 0), (1, 0)], OTHERS, delay)) == (delay == 0)
    assert left_out([(0, 0), (2, 0)], OTHERS, delay) == [((0, 0), 3)]


@pytest.mark.parametrize("rounds", [2, 3])
def test_payload_during_last_aggregation_is_excused(rounds: int) -> None:
    assert bool(left_out([(0, 0), (1, 0)], OTHERS[:rounds])) == (rounds == 3)


def test_listed_successor_proves_arrival_in_time() -> None:
    assert left_out([(0, 0), (1, 0)], [[(0, 1)], [(1, 1), (1, 0)]]) == [((0, 0), 1)]


def test_round_without_payloads_has_none_left_out() -> None:
    """Units begun before a rollback can leave too few others for a quorum; these wait."""
    assert left_out([(0, 0), (1, 0)], [[], [], []]) == []


def test_unit_begun_before_rollback_is_excused() -> None:
    assert left_out([(0, 0), (1, 0)], OTHERS, starts=lambda round_: {"1", "2"}) == []


def test_last_unit_of_replica_may_be_late() -> None:
    """A cancelled job has no later unit, either."""
    assert left_out([(0, 0)], OTHERS) == []


def test_payload_of_another_attempt_is_no_substitute() -> None:
    """A round may list a unit that was rejected after it, and no other one of its replica."""
    assert left_out([(0, 0), (1, 0)], [[(0, 0)], [(1, 0)]]) == []
    assert left_out([(0, 0), (1, 0)], [[(0, 0)], [(1, 0)]], attempt="another") == [((0, 0), 1)]
