"""Token factor: cost of a loss in tokens, against dense training."""

from collections.abc import Mapping

import numpy as np


def token_factor(loss: float, curve: Mapping[int, float]) -> float:
    """Return the longest dense run's tokens over those that dense runs need for ``loss``.

    ``curve`` has their losses by steps. Logarithms are interpolated. The ends of the curve bound the factor.
    """
    steps = sorted(curve)
    best = np.minimum.accumulate([curve[number] for number in steps])
    reached = np.interp(np.log(loss), np.log(best[::-1]), np.log(steps[::-1]))
    return float(steps[-1] / np.exp(reached))
