"""Loops for which numpy has no operation, compiled by numba. No torch.

A loop is compiled at its first call and cached on disk for later processes. numba is imported at that call, so that a
process that calls no loop does not wait for it. ``python -m training_gym.warm_up`` compiles all loops beforehand.

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
