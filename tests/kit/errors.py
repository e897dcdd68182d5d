"""Expected errors with codes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def raises_code(kind: type[Exception], code: str, **expected: Any) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """Expect an error of ``kind`` that has this code."""
    with pytest.raises(kind, **expected) as error:
        yield error
    assert error.value.code == code  # type: ignore[attr-defined]
