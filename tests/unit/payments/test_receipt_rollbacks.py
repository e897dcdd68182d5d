"""Receipts of a job whose second round was rolled back to its first model's successor."""

from dataclasses import replace
from typing import Any

import pytest
from kit.payments.receipt_world import World

from zoo_protocol.payments.job_record import AggregationRecord

ROLLBACK_CODES = {"wrong_rollback", "wrong_aggregation", "wrong_model", "wrong_manifest"}


def roll_back(world: World, to: int = 1, verdict: str = "rolled_back", **changes: Any) -> None:
    """Let the last checkpoint repeat that of round ``to``."""
    record = AggregationRecord.from_bytes(world.files[world.manifest(2).aggregation or ""])
    payloads = [replace(one, verdict=verdict) for one in record.payloads]
    aggregation = world.put(replace(record, payloads=payloads, rolled_back_to=to).to_bytes())
    best = world.manifest(1)
    files: dict[str, Any] = {"model": best.model, "outer_state": best.outer_state, "update": None, "slot_states": {}}
    world.relink(2, aggregation=aggregation, **(files | changes))


def test_rolled_back_checkpoint_is_accepted() -> None:
    world = World()
    roll_back(world)
    assert not ROLLBACK_CODES & set(world.codes())


@pytest.mark.parametrize(
    "forged",
    [{"to": 0}, {"to": 2}, {"verdict": "included"}, {"outer_state": None}, {"update": "wrong"}],
    ids=["other_round", "later_round", "verdict", "outer_state", "update"],
)
def test_forged_rollback_is_found(forged: dict[str, Any]) -> None:
    world = World()
    update = {"update": world.manifest(2).update} if "update" in forged else {}
    roll_back(world, **(forged | update))
    assert "wrong_rollback" in world.codes()
