"""Settings with types and bounds, read from an untrusted document; unknown keys are refused."""

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import Field, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from training_gym.spec.errors import SpecError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


_Settings = TypeVar("_Settings", bound="DataclassInstance")


def choice_field(default: Any, *choices: Any) -> Any:
    """Return a dataclass field with one of ``choices``."""
    return field(default=default, metadata={"choices": choices})


def number_field(default: float, low: float, high: float) -> Any:
    """Return a dataclass field: a number from ``low`` to ``high``, whole if annotated as int."""
    return field(default=default, metadata={"low": low, "high": high})


def section(document: object, name: str, known: Sequence[str]) -> Mapping[str, Any]:
    """Return ``document`` as a mapping of ``known`` keys; ``name``: its path. Raises SpecError."""
    if not isinstance(document, Mapping):
        raise SpecError("wrong_type", name, f"must be an object with the keys {', '.join(known)}")
    for key in document:
        if key not in known:
            path = str(key) if name == "spec" else f"{name}.{key}"
            nearest = difflib.get_close_matches(str(key)[:80], known, n=1, cutoff=0.0)[0]
            raise SpecError(
                "unknown_key", path, f"is not a known setting; the nearest is {nearest!r}. Rename or remove it"
            )
    return document


def read_settings(config: type[_Settings], document: object, name: str) -> _Settings:
    """Return a dataclass of setting fields; missing settings take defaults. Raises SpecError."""
    settings = {setting.name: setting for setting in fields(config)}
    given = section(document, name, list(settings))
    return config(**{key: _value(settings[key], value, f"{name}.{key}") for key, value in given.items()})


def _value(setting: Field[Any], value: object, path: str) -> Any:
    expected = cast(type, setting.type)
    if is_dataclass(expected):
        return read_settings(expected, value, path)
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < 1 << 1000 else math.inf  # larger integers overflow a float
    if type(value) is not expected:
        names = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
        raise SpecError("wrong_type", path, f"must be {names[expected]}, got {value!r:.80}")
    choices = setting.metadata.get("choices")
    if choices is not None:
        if value not in choices:
            listed = ", ".join(repr(one) for one in choices)
            raise SpecError("unsupported_value", path, f"is {value!r:.80}; choose one of {listed}")
        return value
    low, high = setting.metadata["low"], setting.metadata["high"]
    number = cast(float, value)
    if not (low <= number <= high and math.isfinite(number)):
        raise SpecError("out_of_range", path, f"is {value!r:.80}; choose a value from {low} to {high}")
    return value


def cid(value: object, path: str, what: str) -> str:
    """Return ``value`` if it is a CID; ``what`` names the content. Raises SpecError."""
    if value is None:
        raise SpecError("missing_key", path, f"is missing; give the CID of {what}")
    if not isinstance(value, str):
        raise SpecError("wrong_type", path, f"must be the CID of {what} as a string")
    if not (value.isascii() and value.isalnum() and 46 <= len(value) <= 128):
        raise SpecError("out_of_range", path, f"is not a CID; add {what} to IPFS and give its CID")
    return value


def optional_cid(value: object, path: str, what: str) -> str | None:
    """Return a CID or None; ``path`` and ``what`` are for the error. Raises SpecError."""
    return None if value is None else cid(value, path, what)


def whole_number(value: object, path: str, most: int) -> int:
    """Return a whole number from 0 to ``most``. Raises SpecError."""
    if type(value) is not int or not 0 <= value <= most:
        raise SpecError("out_of_range", path, f"is {value!r:.80}; give a whole number from 0 to {most}")
    return value


def share(value: object, path: str) -> float:
    """Return a share above 0 and up to 1. Raises SpecError."""
    if type(value) not in (int, float) or not 0 < value <= 1:  # type: ignore[operator]  # also false for NaN
        raise SpecError("out_of_range", path, f"is {value!r:.80}; give a share above 0, up to 1")
    return float(value)  # type: ignore[arg-type]
