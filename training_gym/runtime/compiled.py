"""Compilation by numba of loops for which numpy has no operation. No torch.

A loop is compiled at its first call and cached on disk for later processes. numba is imported only then, so that other
processes do not wait for it. ``python -m training_gym.warm_up`` compiles all loops in advance.

Loops use only integers and single IEEE operations, never reordered or fused (no ``fastmath``). They give the bits that
numpy gives, on every machine. Indices are not checked; callers ensure their range.
"""

import functools
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")
_LOCK = threading.Lock()


def compiled(loop: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return ``loop`` as machine code that releases the interpreter's lock while it runs."""
    machine_code: Callable[_P, _R] | None = None

    def load() -> Callable[_P, _R]:
        import numba

        try:
            kept: Callable[_P, _R] = numba.njit(nogil=True, error_model="numpy", cache=True)(loop)
        except RuntimeError:  # no cache directory
            kept = numba.njit(nogil=True, error_model="numpy")(loop)
        return kept

    @functools.wraps(loop)
    def call(*arguments: _P.args, **named: _P.kwargs) -> _R:
        nonlocal machine_code
        if machine_code is None:
            with _LOCK:
                machine_code = machine_code or load()
        return machine_code(*arguments, **named)

    return call
