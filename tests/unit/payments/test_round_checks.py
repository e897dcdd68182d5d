"""Checks of single rounds: of a running job, and of a rolled back one."""

from dataclasses import replace
from typing import Any

import pytest
from kit.payments.receipt_world import World
from kit.payments.rollbacks import overflow_next_step, roll_back

from training_gym.exchange.deadlines import staleness_weight
from zoo_compute.audit.receipt import verify_round
from zoo_compute.audit.rounds import JoinedRound
from zoo_compute.base.errors import Finding, Mismatch, ZooError
from zoo_compute.terminal.receipts import report_round
from zoo_protocol.content.cid import cids_of_digest, digest_of
from zoo_protocol.hashing import from_hex, to_hex
from zoo_protocol.payments.job_record import AggregationRecord, UnitRecord
from zoo_protocol.payments.receipt import JobSettlement, Settled
from zoo_protocol.verification.training_faults import Rollback


def pay_by_rounds(world: Any, *lines: list[UnitRecord]) -> None:
    """Let each line have a record of its own units and all checkpoints; none is the last."""
    parts: list[Settled] = []
    for round_, units in enumerate(lines):
        record = replace(world.record, outcome="running", units=units, slashes=[])
        digest = to_hex(digest_of(world.put(record.to_bytes())))
        place = {"batch": round_ + 1, "units": len(units), "from_round": round_, "to_round": round_ + 1}
        parts.append(replace(world.on_settle, **place, refund=0, last=False, record=digest))
    world.settled = lambda job_id: JobSettlement(tuple(parts), next_round=len(parts))


def places(world: Any, round_: int) -> set[tuple[str, str]]:
    return {(finding.code, finding.where) for finding in verify_round(world.job_id, round_, world, world).findings}


def change_payload(world: World, round_: int, **changes: Any) -> None:
    """Replace fields of the only payload in the record of a round."""
    record = AggregationRecord.from_bytes(world.files[world.manifest(round_ + 1).aggregation or ""])
    changed = replace(record, payloads=[replace(record.payloads[0], **changes)])
    world.relink(round_ + 1, aggregation=world.put(changed.to_bytes()))


@pytest.mark.parametrize("round_", [0, 1])
def test_running_job_has_no_finding(round_: int) -> None:
    world = World()
    first, _, second = world.record.units
    pay_by_rounds(world, [first], [second])
    assert places(world, round_) == set()


def test_unsettled_round_is_refused_without_accusation() -> None:
    world: Any = World()
    pay_by_rounds(world, world.record.units[:1])
    assert places(world, 0) == set()
    with pytest.raises(ZooError, match=r"no settlement of job .* has their units 1:0 ") as refused:
        verify_round(world.job_id, 1, world, world)
    assert (refused.value.code, isinstance(refused.value, Mismatch)) == ("round-unsettled", False)
    assert "next settlement" in (refused.value.remedy or "")


def test_lost_record_of_old_line_leaves_units_unsettled() -> None:
    world: Any = World()
    first, _, second = world.record.units
    pay_by_rounds(world, [first], [second])
    for lost in cids_of_digest(from_hex(world.settled(world.job_id).parts[0].record)):
        world.files.pop(lost, None)
    assert places(world, 1) == set()
    with pytest.raises(ZooError, match=r"no settlement of job .* has their units 0:0 "):
        verify_round(world.job_id, 0, world, world)


def test_refunded_job_has_no_further_settlement() -> None:
    world: Any = World()
    pay_by_rounds(world, world.record.units[:1])
    ended = replace(world.settled(world.job_id), over=True)
    world.settled = lambda job_id: ended
    with pytest.raises(ZooError, match="no settlement of job") as refused:
        verify_round(world.job_id, 1, world, world)
    assert refused.value.remedy == "None will follow: its escrow was refunded."


def test_rejected_unit_of_running_job_is_unsettled() -> None:
    """The round's line names only the unit that it pays."""
    world: Any = World()
    first, rejected, second = world.record.units
    change_payload(world, 1, round=0, slot=1, place=3, weight=staleness_weight(1), payload=rejected.payload_cid)
    pay_by_rounds(world, [first], [second])
    assert places(world, 0) == set()


@pytest.mark.parametrize("is_second_settled", [True, False])
def test_other_payload_of_settled_unit_is_found(is_second_settled: bool) -> None:
    world = World()
    first, _, second = world.record.units
    pay = [[first], [second]][: 1 + is_second_settled]
    change_payload(world, 1, round=0, place=2, weight=staleness_weight(1))
    pay_by_rounds(world, *pay)
    assert ("wrong_aggregation", "checkpoints[2].payloads[2]") in places(world, 0)


def test_payload_of_missing_replica_is_found() -> None:
    world = World()
    change_payload(world, 1, slot=2, place=2)
    pay_by_rounds(world, world.record.units[:1])
    assert places(world, 0) == {("wrong_aggregation", "checkpoints[2].payloads[2]")}


def test_wrong_model_of_unsettled_round_is_found() -> None:
    world = World()
    world.relink(2, model=world.record.checkpoints[0].model_cid)
    pay_by_rounds(world, world.record.units[:1])
    assert places(world, 1) == {("wrong_model", "rounds[1].model")}


def test_ended_job_has_all_units_in_last_record() -> None:
    world = World()
    world.change("record", units=world.record.units[:1])
    assert ("wrong_aggregation", "checkpoints[2].payloads[0]") in places(world, 0)


@pytest.mark.parametrize("is_running", [True, False])
def test_rolled_back_round_names_its_target(is_running: bool, capsys: pytest.CaptureFixture[str]) -> None:
    world: Any = World()
    overflow_next_step(world)
    roll_back(world)
    if is_running:
        pay_by_rounds(world, world.record.units[:1])
    joined = verify_round(world.job_id, 1, world, world)
    assert joined == JoinedRound([], Rollback(1, "step_not_finite"))
    report_round(world.job_id, 1, joined, as_json=False)
    shown = capsys.readouterr().err
    assert "no payload of round 1 entered the model" in shown
    assert "repeats the files of the one before round 1. Stated reason: the outer step was not finite" in shown


def test_rollback_of_finite_step_is_found() -> None:
    world = World()
    roll_back(world)
    assert places(world, 1) == {("wrong_rollback", "rounds[1].rollback_reason")}


def test_rollback_without_reason_is_found() -> None:
    world = World()
    roll_back(world, reason=None)
    assert places(world, 1) == {("wrong_rollback", "rounds[1].rollback_reason")}


def test_joined_round_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    report_round("0x12", 3, JoinedRound([]), as_json=True)
    shown = capsys.readouterr()
    assert '"rollback": null' in shown.out
    assert "the payloads of round 3 give the checkpoint after it" in shown.err
    with pytest.raises(Mismatch, match="in 1 points"):
        report_round("0x12", 3, JoinedRound([Finding("wrong_model", "rounds[3].model", "a", "b")]), as_json=False)
