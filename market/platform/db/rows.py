"""Values built from rows by the names of their fields."""

from collections.abc import Mapping
from typing import Any, TypeVar

Value = TypeVar("Value")


def from_row(kind: type[Value], row: object, **given: Any) -> Value:
    """Return a dataclass or pydantic model with the row's attributes, except ``given`` fields."""
    fields: Mapping[str, object] = getattr(kind, "model_fields", None) or vars(kind)["__dataclass_fields__"]
    return kind(**{name: getattr(row, name) for name in fields if name not in given}, **given)
