"""Targets of rollbacks: the checkpoint with the lowest loss that was surely known."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from kit.payments.receipt_world import World
from kit.payments.rollbacks import give_up, roll_back, state_loss

from zoo_compute.audit.rollbacks import RollbackChecks
from zoo_compute.audit.settlements import Verification
from zoo_protocol.content.cid import digest_of
from zoo_protocol.hashing import to_hex
from zoo_protocol.payments.job_record import CheckpointRecord
from zoo_protocol.payments.receipt import JobSettlement, Settled
from zoo_protocol.verification.training_faults import Rollback

TARGET = "rounds[1].rolled_back_to"
settled_job = cache(World)


def settle_before(world: World, checkpoints: Sequence[CheckpointRecord]) -> Settled:
    """Return a settlement whose record shows these checkpoints."""
    record = replace(world.record, outcome="running", checkpoints=list(checkpoints))
    return replace(world.on_settle, last=False, record=to_hex(digest_of(world.put(record.to_bytes()))))


def places(
    losses: Sequence[str | None],
    stated: Mapping[int, tuple[int, str]],
    published: Sequence[int] = (),
    first: str | None = None,
) -> list[str]:
    """Return the places of findings on rollbacks of a job with these losses.

    Args:
        stated: target and reason by the round of the rollback's checkpoint.
        published: numbers of checkpoints in the records of earlier settlements.
        first: loss of the first model in these records, unless it is the same.
    """
    world: Any = settled_job()
    made = world.record.checkpoints[0]
    checkpoints = [
        replace(made, round=round_, cid=str(round_), validation_loss=loss) for round_, loss in enumerate(losses)
    ]
    early = [replace(checkpoints[0], validation_loss=first or losses[0]), *checkpoints[1:]]
    result, lines = Verification(), [settle_before(world, early[:count]) for count in published]
    record = replace(world.record, checkpoints=checkpoints)
    found = {number: Rollback(*one) for number, one in stated.items()}
    RollbackChecks(result.expect, record, world.spec, 2, world).check(found, lines)
    assert {one.code for one in result.findings} <= {"wrong_rollback"}
    return [one.where for one in result.findings]


def test_spike_back_to_itself_is_found() -> None:
    world = World()
    roll_back(world, to=1, reason="loss_spike")
    state_loss(world, 1, "9.000000")
    assert world.codes() == {"wrong_rollback"}


@pytest.mark.parametrize(
    ("losses", "to", "is_found"),
    [
        (["5.0", "4.0", "4.5", "9.0"], 1, False),
        (["5.0", "4.0", "4.5", "9.0"], 2, False),  # 4.0 may have been unknown
        (["5.0", "4.0", "4.5", "9.0"], 0, False),
        (["5.0", "5.2", "4.5", "9.0"], 1, True),  # a spike needs the first loss
        (["5.0", "4.0", "4.5", "9.0"], 3, True),
        (["5.0", None, "4.5", "9.0"], 1, True),
    ],
)
def test_target_of_spike_explains_it(losses: list[str | None], to: int, is_found: bool) -> None:
    assert bool(places(losses, {4: (to, "loss_spike")})) == is_found


@pytest.mark.parametrize(
    ("loss", "is_found"), [("4.0", False), (None, True), ("999999.000000", True)], ids=["known", "unknown", "infinite"]
)
def test_target_has_known_finite_loss(loss: str | None, is_found: bool) -> None:
    assert places(["5.0", loss], {2: (1, "step_not_finite")}) == [TARGET] * is_found


@pytest.mark.parametrize("losses", [[None, None], [None, "4.0"], ["5.0", "4.0"]])
def test_first_model_is_target_without_known_losses(losses: list[str | None]) -> None:
    assert places(losses, {2: (0, "step_not_finite")}) == []


@pytest.mark.parametrize(("published", "is_found"), [(1, True), (2, False)], ids=["before", "in_round"])
def test_target_is_not_above_published_loss(published: int, is_found: bool) -> None:
    """A loss that is published while the round runs may be newer than its rollback."""
    assert places(["5.0", "6.0"], {2: (1, "step_not_finite")}, [published]) == [TARGET] * is_found


@pytest.mark.parametrize(("losses", "to"), [(["3.9", "4.0", "9.0"], 1), (["4.1", "4.0", "9.0"], 0)])
def test_losses_count_as_known_at_rollback(losses: list[str], to: int) -> None:
    """The first model was evaluated on more samples later."""
    stated, first = {3: (to, "step_not_finite")}, {0: "3.9", 1: "4.1"}[to]
    assert places(losses, stated, [2], first) == []
    assert places(losses, stated, [2]) == ["rounds[2].rolled_back_to"]


def test_unknown_target_is_found_with_published_loss() -> None:
    assert places([None, "4.0", "5.0"], {3: (0, "step_not_finite")}, [2]) == ["rounds[2].rolled_back_to"]


@pytest.mark.parametrize(("second", "is_found"), [(1, False), (0, True)])
def test_second_target_is_not_above_first(second: int, is_found: bool) -> None:
    stated = {3: (1, "step_not_finite"), 4: (second, "step_not_finite")}
    assert places(["5.0", "4.0", "4.5", "4.0"], stated) == ["rounds[3].rolled_back_to"] * is_found


def test_first_target_of_unknown_losses_limits_none() -> None:
    stated = {2: (0, "step_not_finite"), 4: (3, "step_not_finite")}
    assert places(["5.0", None, None, "5.5"], stated) == []


def test_final_model_is_replaced_by_evaluated_one() -> None:
    """Its target has the lowest of the losses that the market evaluates again."""
    assert places(["5.0", "4.0", "4.5"], {2: (0, "final_loss")}, [1]) == []


@pytest.mark.parametrize("published", [0, 1])
def test_audit_reads_earlier_settlements(published: int) -> None:
    world: Any = World()
    roll_back(world, reason="diverged")
    give_up(world, "lost")
    state_loss(world, 1, "6.000000")
    last = world.settlement(world.job_id)
    early = [settle_before(world, world.record.checkpoints[:1])] * published
    world.settlement = lambda job_id: JobSettlement((*early, *last.parts), last.refund, last.next_round, over=True)
    assert ("wrong_rollback" in world.codes()) == (published == 1)
