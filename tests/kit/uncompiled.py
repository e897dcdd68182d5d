"""Compiled loops of the training code, replaced by the Python code that they are made of."""

import inspect
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def uncompiled_loops() -> Iterator[None]:
    """Run all loops of ``runtime.compiled`` in loaded modules as Python code."""
    modules = [module for name, module in sys.modules.items() if name.startswith("training_gym.")]
    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # hashes wrap around
        for module in modules:
            for name, value in list(vars(module).items()):
                if inspect.isfunction(value) and hasattr(value, "__wrapped__"):
                    patched.setattr(module, name, value.__wrapped__)
        yield
