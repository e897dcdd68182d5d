"""Start of a round before the previous aggregation (overlapped rounds). Pure; no torch.

With ``round_delay`` a replica that delivered its unit continues at once. It starts from the newest checkpoint and its
own payload, as if all replicas had sent the same. The next checkpoint brings the others' updates (eager updates: Kale
et al., 2025). A pseudo-gradient is measured from the unit's start, so no update counts twice.
"""

import numpy as np

from training_gym.compress.link_adaptation import with_top_k
from training_gym.compress.payload_format import decode, top_k_of
from training_gym.model.layout import NamedArrays
from training_gym.model.tensors import flatten, unflatten
from training_gym.runtime.threads import spans
from training_gym.spec.config import TrainingSpec


def start_parameters(spec: TrainingSpec, checkpoint: NamedArrays, payload: bytes | None) -> NamedArrays:
    """Return a unit's start parameters: the checkpoint plus the replica's own ``payload``.

    The update is outer rate · (1 + outer momentum) · payload: the immediate effect of a pseudo-gradient in the outer
    step. The factor is rounded to float32. Then follow one multiplication and one subtraction per element, so every
    machine computes the same start. An element that would leave float32 keeps its value.

    Raises:
        PayloadError: the untrusted payload is malformed.
    """
    if payload is None:
        return checkpoint
    sent = decode(with_top_k(spec, top_k_of(payload)), payload)
    factor = np.float32(spec.training.outer_learning_rate * (1 + spec.training.outer_momentum))
    vector, values = flatten(checkpoint), sent.values
    places = sent.indices if len(sent.offsets) else None  # the indices of all entries would take twice the model
    with np.errstate(over="ignore", invalid="ignore"):
        for span in spans(len(values)):
            at = span if places is None else places[span]
            moved = vector[at] - factor * values[span]
            vector[at] = np.where(np.isfinite(moved), moved, vector[at])
    return unflatten(spec, vector)
