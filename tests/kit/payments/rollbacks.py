"""Rolled back rounds of a settled job."""

from dataclasses import replace
from typing import Any

import numpy as np

from kit.payments.receipt_world import World
from training_gym.aggregate.outer_step import initial_outer_state, save_outer_state
from zoo_protocol.payments.job_record import AggregationRecord


def overflow_next_step(world: World) -> None:
    """Let the outer step after the first checkpoint overflow."""
    state = initial_outer_state(world.spec)
    huge = np.full_like(state.momentum, np.finfo(np.float32).max)
    world.relink(1, outer_state=world.put(save_outer_state(world.spec, replace(state, momentum=huge, residual=huge))))
    parent = world.record.checkpoints[1].cid
    after = AggregationRecord.from_bytes(world.files[world.manifest(2).aggregation or ""])
    world.relink(2, parent=parent, aggregation=world.put(replace(after, checkpoint=parent).to_bytes()))
    *units, last = world.record.units
    world.change("record", units=[*units, replace(last, start_checkpoint_cid=parent)])


def roll_back(
    world: World, to: int = 1, verdict: str = "rolled_back", reason: str | None = "step_not_finite", **changes: Any
) -> None:
    """Let the last checkpoint repeat that of round ``to``, which has the lowest loss."""
    record = AggregationRecord.from_bytes(world.files[world.manifest(2).aggregation or ""])
    payloads = [replace(one, verdict=verdict) for one in record.payloads]
    aggregation = world.put(replace(record, payloads=payloads, rolled_back_to=to, rollback_reason=reason).to_bytes())
    best = world.manifest(to)
    state = best.outer_state or world.put(save_outer_state(world.spec, initial_outer_state(world.spec)))
    files: dict[str, Any] = {"model": best.model, "outer_state": state, "update": None, "slot_states": {}}
    world.relink(2, aggregation=aggregation, **(files | changes))
    if to == 1:
        state_loss(world, 1, "4.000000")


def state_loss(world: World, round_: int, loss: str | None, error: str | None = "0.010000") -> None:
    """State a loss for the checkpoint of a round."""
    shown = list(world.record.checkpoints)
    shown[round_] = replace(shown[round_], validation_loss=loss, validation_error=error)
    world.change("record", checkpoints=shown)


def give_up(world: World, status: str, begun: int = 1) -> None:
    """Let a second-round unit of each replica, begun from checkpoint ``begun``, be given up."""
    units, start = world.record.units, world.record.checkpoints[begun].cid
    lost = [
        replace(units[-1], slot=slot, status=status, reason="diverged", start_checkpoint_cid=start) for slot in range(2)
    ]
    world.change("record", units=[*units[:-1], *lost])
