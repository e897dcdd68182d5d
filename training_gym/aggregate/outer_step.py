"""Outer step: from the mean pseudo-gradient to parameters and update. No torch.

With ``down_top_k`` the update is the step as a sparse payload. The residual is kept for the next round (the server's
error feedback). The update is therefore as small as an upload, and a node that missed rounds applies one update per
round. Without ``down_top_k`` nodes fetch the whole model.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from training_gym.compress.payload_format import (
    MAX_MAGNITUDE,
    Format,
    Payload,
    decode_vector,
    encode_step,
    layout_digest,
    subtract,
)
from training_gym.model.layout import Arrays, parameter_sizes
from training_gym.model.tensors import FlatView, Vector, read_arrays, safetensors_pieces, unflatten
from training_gym.runtime.compiled import compiled
from training_gym.runtime.threads import map_in_threads, parts, spans
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import PayloadError, StateError

_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class OuterState:
    """State that the outer step carries from round to round.

    Attributes:
        aggregate: mean pseudo-gradient of the last round [num_parameters], the centre of the next round's clipping.
        momentum: momentum of the outer Nesterov step [num_parameters].
        residual: part of the steps that no update has sent yet [num_parameters].
    """

    aggregate: Vector
    momentum: Vector
    residual: Vector


@dataclass(frozen=True, slots=True)
class OuterStep:
    """Next parameters, the update to them (empty without ``down_top_k``), state to carry."""

    parameters: Arrays
    update: bytes
    state: OuterState


def initial_outer_state(spec: TrainingSpec) -> OuterState:
    """Return the state before the first round."""
    return OuterState(*(np.zeros(spec.num_parameters(), np.float32) for _ in range(3)))


def save_outer_state(spec: TrainingSpec, state: OuterState) -> bytes:
    """Return the outer state file, without the arrays that this specification never uses."""
    return b"".join(outer_state_pieces(spec, state))


def outer_state_pieces(spec: TrainingSpec, state: OuterState) -> list[bytes | memoryview]:
    """Return the bytes of :func:`save_outer_state` as views of ``state``, without a copy."""
    return list(safetensors_pieces({name: getattr(state, name) for name in _carried(spec)}))


def load_outer_state(spec: TrainingSpec, data: bytes | None) -> OuterState:
    """Return the state in an outer state file, or the initial one. Raises StateError."""
    if data is None:
        return initial_outer_state(spec)
    return read_outer_state(spec, (data[start : start + _PIECE_BYTES] for start in range(0, len(data), _PIECE_BYTES)))


def read_outer_state(spec: TrainingSpec, pieces: Iterable[bytes]) -> OuterState:
    """Return the state in an outer state file, one piece in memory. Raises StateError."""
    arrays = read_arrays(pieces, outer_state_shapes(spec), "outer_state")
    last = arrays["aggregate"]
    if max(last.max(), -last.min()) > MAX_MAGNITUDE:  # fixed-point products with it would overflow
        raise StateError("out_of_range", "outer_state", f"aggregate has a value beyond {MAX_MAGNITUDE:g}")
    return replace(initial_outer_state(spec), **arrays)


def outer_state_shapes(spec: TrainingSpec) -> dict[str, tuple[int, ...]]:
    """Return the tensors of an outer state file."""
    return dict.fromkeys(_carried(spec), (spec.num_parameters(),))


def _carried(spec: TrainingSpec) -> list[str]:
    used = {"aggregate": True, "momentum": spec.training.outer_momentum > 0, "residual": spec.training.down_top_k > 0}
    return [name for name, needed in used.items() if needed]


def downlink(spec: TrainingSpec) -> Format:
    """Return the format of an update. Only for a specification with ``down_top_k``."""
    training = spec.training
    return Format(parameter_sizes(spec), training.down_top_k, training.down_value_bits, layout_digest(spec))


def outer_step(
    spec: TrainingSpec, parameters: Arrays, mean: Vector, state: OuterState, *, in_place: bool = False
) -> OuterStep:
    """Descend with Nesterov momentum, as DiLoCo does (Douillard et al., 2023).

    Every operation is one IEEE operation per element, so every machine computes the same result.

    Args:
        in_place: overwrite momentum and residual of ``state`` with those of the result.

    Raises:
        PayloadError: the step or a parameter after it is not finite.
    """
    training, size = spec.training, len(mean)
    factor, rate = training.outer_momentum, training.outer_learning_rate
    step = state.residual if in_place and training.down_top_k else np.empty(size, np.float32)
    carried = np.empty(size, np.float32) if factor and not in_place else state.momentum
    left = state.residual if training.down_top_k else state.residual[:0]

    def descend(part: slice) -> None:
        _descend(mean[part], state.momentum[part], factor, rate, left[part], carried[part], step[part])

    map_in_threads(descend, parts(size))
    if not training.down_top_k:
        return OuterStep(_moved(spec, parameters, step), b"", OuterState(mean, carried, state.residual))
    update, sent = encode_step(downlink(spec), step)
    moved = _moved(spec, parameters, sent)
    subtract(step, sent)
    return OuterStep(moved, update, OuterState(mean, carried, step))


@compiled
def _descend(mean: Any, momentum: Any, factor: float, rate: float, residual: Any, carried: Any, step: Any) -> None:
    """Write the outer step, plus the ``residual`` if there is one, to ``step``."""
    for place in range(len(mean)):
        gradient = np.float64(mean[place])
        moved = factor * np.float64(momentum[place]) + gradient
        if factor:
            carried[place] = moved
        wanted = np.float32(rate * (gradient + factor * moved))
        step[place] = wanted + residual[place] if len(residual) else wanted  # `step` may be `residual`


def catch_up(spec: TrainingSpec, parameters: Arrays, updates: Iterable[bytes]) -> None:
    """Apply consecutive rounds' ``updates`` to ``parameters``, to the checkpoint's bits.

    Raises:
        PayloadError: an untrusted update is malformed; the updates before it are applied.
    """
    vector = FlatView(parameters)
    for update in updates:
        step = decode_vector(downlink(spec), update)

        def move(part: slice, step: Payload = step) -> None:
            vector.change(step.chunks.values(part), lambda values: _subtract(values, part, step))

        map_in_threads(move, step.chunks.cut(spans(len(vector))))


def _moved(spec: TrainingSpec, parameters: Arrays, step: Vector | Payload) -> Arrays:
    before = FlatView(parameters)
    after = np.empty(len(before), np.float32)

    chunks = step.chunks if isinstance(step, Payload) else None

    def move(part: slice) -> None:
        span = part if chunks is None else chunks.values(part)
        before.copy(span, after[span])
        if isinstance(step, Payload):
            _subtract(after[span], part, step)
        else:
            with np.errstate(over="ignore"):
                after[span] -= step[span]
        if not np.isfinite(after[span]).all():
            raise PayloadError("not_finite", "parameters", "a value after the outer step is not finite")

    listed = spans(len(after))
    map_in_threads(move, listed if chunks is None else chunks.cut(listed))  # each span changes while it is in the cache
    return unflatten(spec, after)


def _subtract(values: Vector, part: slice, step: Payload) -> None:
    """Subtract the chunks ``part`` of ``step`` from their ``values``."""
    step.add_to(values, part, step.meaning, -1)
