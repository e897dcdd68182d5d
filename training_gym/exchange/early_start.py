"""Starting a round before the one before it is joined. Pure; no torch.

With ``round_delay`` a slot that has delivered its unit goes on at once, from the newest checkpoint and from what it has
just sent: as if everybody else had learned the same. What the others did learn comes with the checkpoint after that
(eager updates: Kale et al., 2025). What it learns is measured from where it started, so nothing counts twice.
"""

import numpy as np

from training_gym.compress.link_adaptation import with_top_k
from training_gym.compress.payload_format import decode, top_k_of
from training_gym.model.layout import Arrays
from training_gym.model.tensors import flatten, unflatten
from training_gym.runtime.threads import spans
from training_gym.spec.config import TrainingSpec


def start_parameters(spec: TrainingSpec, checkpoint: Arrays, payload: bytes | None) -> Arrays:
    """The parameters that a unit starts from: the checkpoint's, moved by the slot's own ``payload`` if there is one.

    They move by outer rate · (1 + outer momentum) · what was sent, which is what the outer step makes at once of a
    pseudo-gradient. The factor is rounded to float32, then there is one multiplication and one subtraction an element,
    so anybody makes the same start; an entry that would leave float32 stays as it is.

    Raises:
        PayloadError: naming what is malformed in a payload from a stranger.
    """
    if payload is None:
        return checkpoint
    sent = decode(with_top_k(spec, top_k_of(payload)), payload)
    factor = np.float32(spec.training.outer_learning_rate * (1 + spec.training.outer_momentum))
    vector, values = flatten(checkpoint), sent.values
    places = sent.indices if len(sent.offsets) else None  # of all entries they would take twice the model
    with np.errstate(over="ignore", invalid="ignore"):
        for span in spans(len(values)):
            at = span if places is None else places[span]
            moved = vector[at] - factor * values[span]
            vector[at] = np.where(np.isfinite(moved), moved, vector[at])
    return unflatten(spec.model, vector)
