"""Strict reading of small untrusted JSON documents (manifests)."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from training_gym.spec.errors import ManifestError

MAX_MANIFEST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in storage: its CID, size in bytes, and SHA2-256 as 0x hex."""

    cid: str
    size: int
    sha256: str


def read_json(data: bytes, what: str) -> dict[str, Any]:
    """Return the JSON object in ``data``. Raises ManifestError: too large, or no JSON object."""
    if len(data) > MAX_MANIFEST_BYTES:
        raise ManifestError("too_large", what, f"has {len(data)} bytes, beyond {MAX_MANIFEST_BYTES}")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ManifestError("malformed", what, f"is not JSON ({error!s:.120})") from error
    if not isinstance(document, dict):
        raise ManifestError("wrong_type", what, "must be a JSON object")
    return document


def read_fields(document: object, path: str, names: Sequence[str]) -> Mapping[str, Any]:
    """Return ``document`` as a mapping with exactly the keys ``names``."""
    if not isinstance(document, Mapping):
        raise ManifestError("wrong_type", path, f"must be an object with the keys {', '.join(names)}")
    for name in names:
        if name not in document:
            raise ManifestError("missing_key", f"{path}.{name}", "is missing")
    for name in document:
        if name not in names:
            raise ManifestError("unknown_key", f"{path}.{name}", f"is not one of {', '.join(names)}")
    return document


def read_integer(value: object, path: str, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ManifestError("out_of_range", path, f"must be a whole number from {low} to {high}, got {value!r:.80}")
    return value


def read_pattern(value: object, path: str, pattern: str, description: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise ManifestError("malformed", path, f"must be {description}, got {value!r:.80}")
    return value


def read_hash(value: object, path: str) -> str:
    return read_pattern(value, path, "0x[0-9a-f]{64}", "0x and 64 lower-case hex digits")


def read_cid(value: object, path: str) -> str:
    return read_pattern(value, path, "[A-Za-z0-9]{46,128}", "a CID")


def read_file(value: object, path: str, most: int) -> StoredFile:
    """Return the file of at most ``most`` bytes that ``value`` describes. Raises ManifestError."""
    fields = read_fields(value, path, ["cid", "size", "sha256"])
    return StoredFile(
        cid=read_cid(fields["cid"], f"{path}.cid"),
        size=read_integer(fields["size"], f"{path}.size", 1, most),
        sha256=read_hash(fields["sha256"], f"{path}.sha256"),
    )
