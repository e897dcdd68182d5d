"""Rolled back rounds of a settled job."""

from dataclasses import replace
from typing import Any

from kit.payments.receipt_world import World
from zoo_protocol.payments.job_record import AggregationRecord


def roll_back(
    world: World, to: int = 1, verdict: str = "rolled_back", reason: str | None = "step_not_finite", **changes: Any
) -> None:
    """Let the last checkpoint repeat that of round ``to``."""
    record = AggregationRecord.from_bytes(world.files[world.manifest(2).aggregation or ""])
    payloads = [replace(one, verdict=verdict) for one in record.payloads]
    aggregation = world.put(replace(record, payloads=payloads, rolled_back_to=to, rollback_reason=reason).to_bytes())
    best = world.manifest(1)
    files: dict[str, Any] = {"model": best.model, "outer_state": best.outer_state, "update": None, "slot_states": {}}
    world.relink(2, aggregation=aggregation, **(files | changes))
