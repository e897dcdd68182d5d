"""Rollback of a job whose training goes wrong, to its best checkpoint. Pure.

A round is rolled back if the loss of its checkpoint is not finite or spikes. So it is if a quorum of its replicas
diverged, or if its outer step is not finite. The next checkpoint then repeats the best one: model and outer state.
Replica states start afresh, and no payload of the round is aggregated. Units are verified and paid as usual.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from market.domain.verification.sampling import DIVERGED
from market.training.units.models import Unit
from market.training.units.repository import DELIVERED_UNIT
from training_gym.exchange.deadlines import quorum

LOSS_SPIKE, NOT_FINITE, STEP_NOT_FINITE = "loss_spike", "loss_not_finite", "step_not_finite"
_LOSS_SHARE, _GAIN_SHARE = 0.2, 0.25
_LARGEST_LOSS = 999_999.0  # stands for a loss that is not finite


@dataclass(frozen=True, slots=True)
class Rollback:
    """Return to the checkpoint before round ``to``, for the reason with this stable code."""

    to: int
    reason: str


def loss_fault(losses: Sequence[float]) -> str | None:
    """Return the code of the newest loss's fault, given the job's losses in order; None if fine.

    A spike is a loss above the best one by more than a fifth of it, and by a quarter of what training had gained.
    """
    if not losses:
        return None
    newest, best = losses[-1], min(losses)
    if not math.isfinite(newest) or newest >= _LARGEST_LOSS:
        return NOT_FINITE
    limit = best + max(_LOSS_SHARE * best, _GAIN_SHARE * (losses[0] - best))
    return LOSS_SPIKE if newest > limit else None


def diverged_slots(units: Collection[Unit]) -> set[int]:
    """Return the replicas that have no usable unit of the round, because training diverged."""
    lost = {unit.slot for unit in units if unit.reason == DIVERGED}
    return lost - {unit.slot for unit in units if unit.status in DELIVERED_UNIT}


def needed_rollback(losses: Mapping[int, float], since: int, units: Collection[Unit], nodes: int) -> Rollback | None:
    """Return the rollback that a round needs, or None.

    Args:
        losses: known losses by the round of their checkpoint, up to the present one.
        since: round of the checkpoint of the last rollback; losses before it do not count again.
        units: of the round, lost ones too.
        nodes: replicas of the job.
    """
    known = [loss for _, loss in sorted(losses.items())]
    reason = loss_fault(known) if losses and max(losses) >= since else None
    if reason is None and len(diverged_slots(units)) >= quorum(nodes):
        reason = DIVERGED
    return None if reason is None else Rollback(best_round(losses), reason)


def best_round(losses: Mapping[int, float]) -> int:
    """Return the round of the lowest known loss, of equal ones the first; 0 if none is known."""
    return min(sorted(losses), key=losses.__getitem__, default=0)
