"""Training faults: rollbacks, their codes, and the rules on validation losses."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

LOSS_SPIKE, LOSS_NOT_FINITE, FINAL_LOSS = "loss_spike", "loss_not_finite", "final_loss"
STEP_NOT_FINITE, DIVERGED = "step_not_finite", "diverged"
FAULTS = {
    LOSS_SPIKE: "the validation loss rose",
    LOSS_NOT_FINITE: "the validation loss was not finite",
    FINAL_LOSS: "the validation loss after the last round was higher than the best one, or not finite",
    STEP_NOT_FINITE: "the outer step was not finite",
    DIVERGED: "training diverged on too many replicas",
}
"""Codes of a rollback's reason, in words."""
DIVERGED_ADVICE = (
    "Training went wrong more often than a job has rollbacks. Lower the learning rates or check the data. "
    'The user guide (docs/user-guide.md) explains it under "Training that goes wrong".'
)
"""What to do about a job that failed as ``diverged``."""
LARGEST_LOSS = 999_999.0
"""Stated loss of a model whose loss is larger or not finite."""
_LOSS_SHARE, _GAIN_SHARE = 0.2, 0.25
_ERRORS, _MAX_ERROR_SHARE = 3, 0.15
_TRIES, _MIN_REPLICAS = 3, 2
_RISE_SHARE, _RISE_ERRORS = 0.01, 0.5


@dataclass(frozen=True, slots=True)
class Rollback:
    """Return to the checkpoint before round ``to``; ``reason`` is a code of :data:`FAULTS`."""

    to: int
    reason: str


class KnownLoss(NamedTuple):
    """Validation loss of a checkpoint and its standard error."""

    loss: float
    error: float = 0.0

    @classmethod
    def of(cls, loss: str, error: str | None) -> "KnownLoss":
        """Return a recorded loss. A missing error counts as 0."""
        return cls(float(loss), float(error or 0))

    @property
    def counted_error(self) -> float:
        """Error, up to a share of the loss: one sample that is not finite makes both alike."""
        return min(self.error, _MAX_ERROR_SHARE * self.loss)


def stated_loss(loss: float) -> str:
    """Return a loss as it is stated: with six places, and at most ``LARGEST_LOSS``."""
    return f"{loss if loss < LARGEST_LOSS else LARGEST_LOSS:.6f}"


def loss_fault(losses: Sequence[KnownLoss], origin: float = 0.0) -> str | None:
    """Return the code of the newest loss's fault, given the job's losses in order; None if fine.

    A spike is a loss above an earlier one by more than a fifth of it, and by a quarter of what training had gained. It
    is also three standard errors of both losses above that limit.

    Args:
        origin: first loss of the jobs that this one continues, from which training gained; 0 if unknown.
    """
    if not losses:
        return None
    first, newest = max(losses[0].loss, origin), losses[-1]
    if not math.isfinite(newest.loss) or newest.loss >= LARGEST_LOSS:
        return LOSS_NOT_FINITE
    return LOSS_SPIKE if any(_is_spike(newest, one, first) for one in losses) else None


def _is_spike(newest: KnownLoss, earlier: KnownLoss, first: float) -> bool:
    limit = earlier.loss + max(_LOSS_SHARE * earlier.loss, _GAIN_SHARE * (first - earlier.loss))
    return newest.loss > limit + _ERRORS * math.hypot(newest.counted_error, earlier.counted_error)


def checkpoint_fault(losses: Mapping[int, KnownLoss], origin: float = 0.0) -> str | None:
    """Return the code of the newest checkpoint's fault, given the known losses by round.

    It remains one when further losses become known. So a spike needs the first loss, which limits it. Without the
    ``origin`` of :func:`loss_fault` there are more spikes.
    """
    fault = loss_fault([loss for _, loss in sorted(losses.items())], origin)
    return None if fault == LOSS_SPIKE and 0 not in losses else fault


def has_risen(before: Mapping[int, KnownLoss], after: Mapping[int, KnownLoss]) -> bool:
    """Return True if a model is worse than an earlier one, by the median of its evaluators.

    The loss rose by more than a hundredth. An evaluator takes the same samples of all models, so most of its errors
    cancel out, and a small part of them is the margin. Less than half of the evaluators may lie.

    Args:
        before, after: losses of the two models by evaluator.
    """
    both = before.keys() & after.keys()
    if not both:
        return False
    errors = [math.hypot(before[one].counted_error, after[one].counted_error) for one in both]
    return rise(before, after) > _RISE_ERRORS * median(errors) / math.sqrt(len(both))


def rise(before: Mapping[int, KnownLoss], after: Mapping[int, KnownLoss]) -> float:
    """Return the loss's rise beyond a hundredth, by the median of both models' evaluators.

    Args:
        before, after: as for :func:`has_risen`; without a common evaluator the result is -inf.
    """
    both = before.keys() & after.keys()
    return median(after[one].loss - (1 + _RISE_SHARE) * before[one].loss for one in both) if both else -math.inf


def is_worse(final: KnownLoss, best: KnownLoss, errors: int = 0) -> bool:
    """Return True if a final model's loss is above the best one's by more than a hundredth.

    Args:
        errors: number of standard errors of both losses that are added to the limit.
    """
    limit = (1 + _RISE_SHARE) * best.loss + errors * math.hypot(final.counted_error, best.counted_error)
    return loss_fault([final]) is not None or final.loss > limit


def has_diverged(given_up: Mapping[int, int], nodes: int, quorum: int) -> bool:
    """Return True if a round cannot be trained.

    A quorum of replicas, at least two, gave up a unit as diverged. Or so many gave up ``_TRIES`` that the others cannot
    be one.

    Args:
        given_up: number of units given up, by replica without another result.
        nodes, quorum: replicas of the job, and those that a round needs.
    """
    lasting = sum(units >= _TRIES for units in given_up.values())
    return len(given_up) >= max(quorum, _MIN_REPLICAS) or nodes - lasting < quorum
