"""Loops for which numpy has no operation, compiled by numba. No torch.

A loop is compiled when it is first called, and kept on disk for the processes after: numba itself is not imported
before, so whoever encodes, decodes and joins nothing does not wait for it. ``python -m training_gym.compiled`` compiles
all of them beforehand.

Only whole numbers and single IEEE operations, never reordered or fused (no ``fastmath``): the same bits on every
machine as numpy would give. Indices are not checked, so whoever calls a loop sees to it that they are in range.
"""

import functools
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")
_ONE_AT_A_TIME = threading.Lock()


def compiled(loop: Callable[_P, _R]) -> Callable[_P, _R]:
    """``loop`` as machine code, which leaves the interpreter's lock to others while it runs."""

    machine_code: Callable[_P, _R] | None = None

    def load() -> Callable[_P, _R]:
        import numba

        try:
            kept: Callable[_P, _R] = numba.njit(nogil=True, error_model="numpy", cache=True)(loop)
        except RuntimeError:  # no directory to keep it in
            kept = numba.njit(nogil=True, error_model="numpy")(loop)
        return kept

    @functools.wraps(loop)
    def call(*arguments: _P.args, **named: _P.kwargs) -> _R:
        nonlocal machine_code
        if machine_code is None:
            with _ONE_AT_A_TIME:
                machine_code = machine_code or load()
        return machine_code(*arguments, **named)

    return call


def compile_all() -> None:
    """Compile every loop, by joining small payloads of each kind."""
    import numpy as np

    from training_gym.aggregation import aggregate
    from training_gym.compression.wire import decode, encode
    from training_gym.config import ModelConfig, TrainingConfig, TrainingSpec
    from training_gym.models.layout import initial_parameters
    from training_gym.outer import catch_up

    model = ModelConfig(hidden_size=8, num_layers=1, num_heads=1, sequence_length=8)
    for top_k, bits in ((960, 2), (4096, 2), (4096, 8)):
        training = TrainingConfig(top_k=top_k, value_bits=bits, down_top_k=top_k, down_value_bits=bits)
        spec = TrainingSpec(model, "unused", training)
        vector = np.linspace(-1, 1, spec.num_parameters(), dtype=np.float32) ** 3
        payloads = {slot: encode(spec, vector) for slot in range(5)}  # four of the simplest go together
        decode(spec, payloads[0]).dense()  # as nodes take it
        state = None
        for _ in range(2):  # the second round has a last aggregate
            joined = aggregate(spec, initial_parameters(model, 0), payloads, None, state)
            catch_up(spec, initial_parameters(model, 0), [joined.update])
            state = joined.outer_state


if __name__ == "__main__":
    compile_all()
