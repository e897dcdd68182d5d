"""Tolerance of cross-class checks. Pure.

Honest results of two environment classes differ by float32 rounding. A check within tolerance passes a segment without
a verifier of its class. A check beyond it decides nothing: a verifier of the class must replay.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

START_PER_STEP = 1e-4 / 30
"""Tolerance per inner step before any measurement for the job and pair of classes: twice the largest drift of an honest
step (``benchmarks.verification``). Drifts grow with the learning rates of the job."""
MARGIN = 10
"""Ratio of the tolerance to the measured drift of honest work."""
CAP = 1e-4
"""Upper bound of the tolerance; the smallest false work is above it (``benchmarks.verification``)."""
TENSOR_SHARE, TENSOR_CAP = 200, 2e-3
"""Ratio of a single tensor's tolerance to the whole, and its cap. Small tensors drift more, and show false work too."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Largest relative L2 distances that pass: over all parameters, and of the widest tensor."""

    whole: float
    widest: float

    def passes(self, whole: float, widest: float) -> bool:
        """Return True if both distances pass; NaN does not."""
        return whole <= self.whole and widest <= self.widest


def tolerance(segment_steps: int, drifts: Sequence[float]) -> Tolerance:
    """Return the tolerance for a job and a pair of classes.

    The median bounds the influence of one wrong measurement. Drifts only widen the tolerance, since the market measures
    only those beyond it.

    Args:
        segment_steps: inner steps of a segment.
        drifts: relative L2 distances of segments that a verifier of the provider's class confirmed.

    Raises:
        ValueError: if there are no steps or a drift is negative.
    """
    if segment_steps < 1 or any(drift < 0 for drift in drifts):
        raise ValueError(f"segment_steps={segment_steps} must be positive, and no drift negative")
    measured = MARGIN * median(drifts) if drifts else 0.0
    whole = min(CAP, max(START_PER_STEP * segment_steps, measured))
    return Tolerance(whole, min(TENSOR_CAP, TENSOR_SHARE * whole))
