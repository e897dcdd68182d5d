"""Expected errors with codes, and functions that only raise."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def raises_code(kind: type[Exception], code: str, **expected: Any) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """Expect an error of ``kind`` that has this code."""
    with pytest.raises(kind, **expected) as error:
        yield error
    assert error.value.code == code  # type: ignore[attr-defined]


def raising(error: BaseException | type[BaseException]) -> Callable[..., Any]:
    """Return a function that raises ``error`` for any arguments."""

    def raise_it(*_: object, **__: object) -> None:
        raise error

    return raise_it
