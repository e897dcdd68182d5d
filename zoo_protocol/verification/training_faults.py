"""Training faults: rollbacks, their codes, and the rule on validation losses."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

LOSS_SPIKE, LOSS_NOT_FINITE, STEP_NOT_FINITE, DIVERGED = "loss_spike", "loss_not_finite", "step_not_finite", "diverged"
FAULTS = {
    LOSS_SPIKE: "the validation loss rose",
    LOSS_NOT_FINITE: "the validation loss was not finite",
    STEP_NOT_FINITE: "the outer step was not finite",
    DIVERGED: "training diverged on a quorum of the replicas",
}
"""Codes of a rollback's reason, in words."""
LARGEST_LOSS = 999_999.0
"""Stated loss of a model whose loss is larger or not finite."""
_LOSS_SHARE, _GAIN_SHARE = 0.2, 0.25


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
