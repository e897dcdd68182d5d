"""Rollbacks that a round needs, from its job's checkpoints and units."""

import math
from typing import Any

import pytest
from pydantic import TypeAdapter

from market.jobs.models import Job
from market.training.aggregation.rollback import continued_checkpoint, needed_rollback
from market.training.checkpoints.models import Checkpoint
from market.training.leases.schemas import DecimalString
from market.training.units.models import Unit
from zoo_protocol.verification.training_faults import (
    DIVERGED,
    LOSS_NOT_FINITE,
    LOSS_SPIKE,
    KnownLoss,
    Rollback,
    loss_fault,
    stated_loss,
)

REPLICAS = 3


def checkpoints(*losses: str | None, rolled_back: int | None = None) -> list[Checkpoint]:
    """Return checkpoints with these losses; that of round ``rolled_back`` repeats the first."""
    return [
        Checkpoint(round=round_, cid=f"c{round_}", validation_loss=loss, rolled_back_to=to)
        for round_, loss in enumerate(losses)
        for to in [0 if round_ == rolled_back else None]
    ]


def given_up(start: int, slots: int = REPLICAS, **changes: Any) -> list[Unit]:
    """Return a unit of each replica that diverged from the checkpoint of round ``start``."""
    fields = {"status": "lost", "reason": DIVERGED, "start_checkpoint_cid": f"c{start}"} | changes
    return [Unit(slot=slot, **fields) for slot in range(slots)]


def test_units_begun_before_rollback_do_not_repeat_it() -> None:
    known = checkpoints("3.0", "9.0", "3.0", rolled_back=2)
    assert needed_rollback(known, given_up(1), REPLICAS) is None
    assert needed_rollback(known, given_up(2), REPLICAS) == Rollback(0, DIVERGED)


@pytest.mark.parametrize(
    ("losses", "reason"),
    [
        ((None, "5.0", "6.1"), None),
        (("10.0", "5.0", "6.1"), None),
        (("5.5", "5.0", "6.1"), LOSS_SPIKE),
        ((None, "5.0", "999999.0"), LOSS_NOT_FINITE),
    ],
    ids=["first_unknown", "first_high", "first_low", "not_finite"],
)
def test_spike_needs_first_loss(losses: tuple[str | None, ...], reason: str | None) -> None:
    found = needed_rollback(checkpoints(*losses), [], REPLICAS)
    assert (None if found is None else found.reason) == reason


@pytest.mark.parametrize(("loss", "reason"), [("0.76", None), ("1.6", LOSS_SPIKE)])
def test_first_loss_of_job_before_limits_spikes(loss: str, reason: str | None) -> None:
    """From 5.5 to 0.231, as at once, a quarter of the gain is 1.32."""
    known, job = checkpoints("0.231", loss), Job(nodes=REPLICAS, rounds=9)
    assert needed_rollback(known, [], REPLICAS) == Rollback(0, LOSS_SPIKE)
    assert continued_checkpoint(job, known, []).round == 0
    known[0].origin_loss = "5.5"
    assert needed_rollback(known, [], REPLICAS) == (reason and Rollback(0, reason))
    assert continued_checkpoint(job, known, []).round == (reason is None)


@pytest.mark.parametrize(
    ("losses", "changes", "units", "expected"),
    [
        (("5.5", "5.0", "5.1", None), {}, given_up(3, slots=1), 3),
        (("5.5", "5.0", "6.1", None), {}, [], 1),
        (("5.5", "5.0", "5.1", None), {"reason": DIVERGED}, [], 1),
        (("5.5", "5.0", "5.1", None), {"reason": "cancelled_by_payer"}, given_up(3), 1),
        (("5.5", "5.0", "6.1"), {"rounds": 2}, [], 2),
    ],
    ids=["noise", "spike", "diverged", "cancelled_when_diverged", "accepted_final_model"],
)
def test_extension_starts_from_last_unspoiled_checkpoint(
    losses: tuple[str | None, ...], changes: dict[str, Any], units: list[Unit], expected: int
) -> None:
    job = Job(nodes=REPLICAS, **{"rounds": 9} | changes)
    assert continued_checkpoint(job, checkpoints(*losses), units).round == expected


@pytest.mark.parametrize(("losses", "expected"), [(("5.5", "5.0", "6.1"), 1), (("0.1", "5.5", "5.4"), 2)])
def test_stated_first_loss_decides_no_extension(losses: tuple[str, ...], expected: int) -> None:
    found = checkpoints(*losses)
    found[0].is_stated = True
    assert continued_checkpoint(Job(nodes=REPLICAS, rounds=9), found, []).round == expected


def test_lower_loss_known_later_confirms_spike() -> None:
    first, newest = KnownLoss(5.0, 0.01), KnownLoss(6.3, 0.05)
    assert loss_fault([first, newest]) == loss_fault([first, KnownLoss(4.99, 0.2), newest]) == LOSS_SPIKE


@pytest.mark.parametrize(
    ("loss", "stated"),
    [(2.5, "2.500000"), (2.48e12, "999999.000000"), (math.inf, "999999.000000"), (math.nan, "999999.000000")],
)
def test_stated_loss_is_accepted_from_node(loss: float, stated: str) -> None:
    assert TypeAdapter(DecimalString).validate_python(stated_loss(loss)) == stated
