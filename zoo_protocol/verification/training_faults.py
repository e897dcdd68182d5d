"""Training faults: rollbacks, their codes, and the rule on validation losses."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LOSS_SPIKE, LOSS_NOT_FINITE, FINAL_LOSS = "loss_spike", "loss_not_finite", "final_loss"
STEP_NOT_FINITE, DIVERGED = "step_not_finite", "diverged"
FAULTS = {
    LOSS_SPIKE: "the validation loss rose",
    LOSS_NOT_FINITE: "the validation loss was not finite",
    FINAL_LOSS: "the validation loss after the last round rose or was not finite",
    STEP_NOT_FINITE: "the outer step was not finite",
    DIVERGED: "training diverged on too many replicas",
}
"""Codes of a rollback's reason, in words."""
LARGEST_LOSS = 999_999.0
"""Stated loss of a model whose loss is larger or not finite."""
_LOSS_SHARE, _GAIN_SHARE = 0.2, 0.25
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Rollback:
    """Return to the checkpoint before round ``to``; ``reason`` is a code of :data:`FAULTS`."""

    to: int
    reason: str


def loss_fault(losses: Sequence[float]) -> str | None:
    """Return the code of the newest loss's fault, given the job's losses in order; None if fine.

    A spike is a loss above the best one by more than a fifth of it, and by a quarter of what training had gained.
    """
    if not losses:
        return None
    newest, best = losses[-1], min(losses)
    if not math.isfinite(newest) or newest >= LARGEST_LOSS:
        return LOSS_NOT_FINITE
    limit = best + max(_LOSS_SHARE * best, _GAIN_SHARE * (losses[0] - best))
    return LOSS_SPIKE if newest > limit else None


def has_diverged(given_up: Mapping[int, int], nodes: int, quorum: int) -> bool:
    """Return True if a round cannot be trained.

    A quorum of replicas gave up a unit as diverged, or so many gave up ``_TRIES`` that the others cannot be one.

    Args:
        given_up: number of units given up, by replica without another result.
        nodes, quorum: replicas of the job, and those that a round needs.
    """
    lasting = sum(units >= _TRIES for units in given_up.values())
    return len(given_up) >= quorum or nodes - lasting < quorum
