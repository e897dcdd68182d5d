"""When a replay in another environment class is near enough to what a provider claims. Pure rules.

Bits differ between classes for honest work too, by float32's rounding, so nearness is all that can be asked. It passes
a segment where no verifier of its class is there; being too far apart says only that one of the class is needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

START_PER_STEP = 1e-4 / 30
"""The tolerance, by inner step of a segment, while nothing has been measured for the job and pair of classes: twice the
largest drift of an honest step (``benchmarks.verification``). Drifts grow with the rates of the job."""


MARGIN = 10
"""How many times the measured drift of honest work passes."""


CAP = 1e-4
"""No drift widens the tolerance beyond this; the smallest cheats lie above (``benchmarks.verification``)."""


TENSOR_SHARE, TENSOR_CAP = 200, 2e-3
"""How much further a single tensor may be apart, and its own cap: small ones drift more, and cheats show there too."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Largest relative L2 distances that pass: over all parameters, and of the tensor in which it is widest."""

    whole: float
    widest: float

    def passes(self, whole: float, widest: float) -> bool:
        """Whether parameters that far apart pass; what is no number does not."""
        return whole <= self.whole and widest <= self.widest


def tolerance(segment_steps: int, drifts: Sequence[float]) -> Tolerance:
    """What passes for a job and a pair of classes.

    The median of the measured drifts counts, so that a single verifier that measured nonsense moves little; and it
    never narrows the tolerance, since only what was beyond it is ever measured.

    Args:
        segment_steps: inner steps of a segment.
        drifts: relative L2 distances of honest segments, measured where a verifier of the provider's own class then
            came to the claimed bits.

    Raises:
        ValueError: no steps, or a drift below zero.
    """
    if segment_steps < 1 or any(drift < 0 for drift in drifts):
        raise ValueError(f"segment_steps={segment_steps} must be positive, and no drift negative")
    measured = MARGIN * median(drifts) if drifts else 0.0
    whole = min(CAP, max(START_PER_STEP * segment_steps, measured))
    return Tolerance(whole, min(TENSOR_CAP, TENSOR_SHARE * whole))
