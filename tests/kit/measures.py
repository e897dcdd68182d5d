"""Costs of a call that do not depend on the machine's speed."""

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

Result = TypeVar("Result")


def lines_run(call: Callable[[], Result]) -> tuple[int, Result]:
    """Return how many lines of Python the call runs, and its result."""
    lines = 0

    def count(_frame: FrameType, event: str, argument: object) -> Callable[..., object]:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        result = call()
    finally:
        sys.settrace(before)
    return lines, result


def peak_bytes(call: Callable[[], object]) -> int:
    """Return the most memory that the call holds at once."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
