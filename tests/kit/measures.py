"""Costs of a call that do not depend on the machine's speed, and its SQL statements."""

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from sqlalchemy import event

from market.platform.db.session import Database

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


@contextmanager
def statements(database: Database) -> Iterator[list[tuple[str, Any]]]:
    """Collect the statements that the database gets within the block, with their parameters."""
    seen: list[tuple[str, Any]] = []

    def note(_connection: object, _cursor: object, statement: str, parameters: Any, *_: object) -> None:
        seen.append((statement, parameters))

    event.listen(database.engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(database.engine, "before_cursor_execute", note)
