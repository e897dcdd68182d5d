"""JSON by RFC 8259, which has no infinity and no NaN."""

import json
import math
from typing import Any


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Return a JSON document of plain values and models; infinity and NaN become null."""
    return json.dumps(_plain(value), indent=indent, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "model_dump"):  # a model of pydantic, which not every command loads
        return _plain(value.model_dump(mode="json"))
    return value if value is None or isinstance(value, str | int) else str(value)
