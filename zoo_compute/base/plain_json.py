"""JSON as programs read it: RFC 8259 knows no number that is not finite, though Python writes them."""

import json
import math
from typing import Any


def to_json(value: Any, *, indent: int | None = None) -> str:
    """A JSON document; what JSON has no word for is text, and a number that is not finite is null."""
    return json.dumps(_plain(value), indent=indent, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)
