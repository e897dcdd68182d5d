"""Decoding of revert data into the custom errors of the contracts."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from eth_abi.abi import decode
from eth_abi.exceptions import DecodingError
from eth_utils.abi import collapse_if_tuple, function_abi_to_4byte_selector
from eth_utils.address import to_checksum_address

from zoo_protocol.contracts import CONTRACTS, artifact


def decode_revert(data: bytes) -> tuple[str, str]:
    """Return (error name, arguments as text) of revert data of all contracts' errors."""
    name, values = decode_error(data)
    if name != UNKNOWN:
        return name, ", ".join(f"{key}={value}" for key, value in values.items())
    return name, "0x" + data.hex() if data else "no reason given"


def decode_error(data: bytes) -> tuple[str, dict[str, Any]]:
    """Return (error name, arguments by name) of revert data; ``UNKNOWN`` for any other data."""
    abi = _errors().get(data[:4])
    if abi is None:
        return UNKNOWN, {}
    try:
        values = decode([collapse_if_tuple(field) for field in abi["inputs"]], data[4:])
    except DecodingError:  # another contract's error with the same selector
        return UNKNOWN, {}
    return str(abi["name"]), {
        field["name"]: plain(field, value) for field, value in zip(abi["inputs"], values, strict=True)
    }


UNKNOWN = "Unknown"
"""Name of an error of no contract of the network."""

_BUILT_IN_ERRORS: tuple[dict[str, Any], ...] = (
    {"type": "error", "name": "Error", "inputs": [{"name": "reason", "type": "string"}]},
    {"type": "error", "name": "Panic", "inputs": [{"name": "code", "type": "uint256"}]},
)


@cache
def _errors() -> dict[bytes, dict[str, Any]]:
    declared = [item for name in CONTRACTS for item in artifact(name).abi if item["type"] == "error"]
    return {bytes(function_abi_to_4byte_selector(_as_function(item))): item for item in (*_BUILT_IN_ERRORS, *declared)}


def _as_function(error: dict[str, Any]) -> Any:
    return {**error, "type": "function"}  # a custom error's selector has the form of a function's


def plain(field: Mapping[str, Any], value: Any) -> Any:
    """Return a decoded value as JSON: byte strings as 0x hex, addresses with checksum."""
    kind = str(field["type"])
    if kind.endswith("]"):
        element = {**field, "type": kind[: kind.rindex("[")]}
        return [plain(element, item) for item in value]
    if kind == "tuple":
        return {part["name"]: plain(part, item) for part, item in zip(field["components"], value, strict=True)}
    if kind == "address":
        return to_checksum_address(value)
    return "0x" + value.hex() if isinstance(value, bytes) else value
