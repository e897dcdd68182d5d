"""ABI of the contracts' functions: call data from arguments, and arguments from call data."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError, EncodingError
from eth_utils.abi import collapse_if_tuple, function_abi_to_4byte_selector

from zoo_protocol.contracts import artifact
from zoo_protocol.reverts import plain


@cache
def functions(contract: str) -> Mapping[bytes, dict[str, Any]]:
    """Return the ABI of a contract's functions by selector. Raises ValueError: unknown."""
    declared = (item for item in artifact(contract).abi if item["type"] == "function")
    return {selector(item): item for item in declared}


def function(contract: str, name: str) -> dict[str, Any]:
    """Return the ABI of one function. Raises ValueError: the contract has none of this name."""
    for item in functions(contract).values():
        if item["name"] == name:
            return item
    raise ValueError(f"{contract} has no function {name!r}")


def selector(abi: Any) -> bytes:
    """Return the first four bytes of a function's call data."""
    return bytes(function_abi_to_4byte_selector(abi))


def encode_call(contract: str, name: str, arguments: Sequence[Any]) -> bytes:
    """Return the call data. Raises ValueError: the arguments do not match the function."""
    abi = function(contract, name)
    return selector(abi) + encode_arguments(abi["inputs"], arguments)


def decode_call(contract: str, data: bytes) -> tuple[str, dict[str, Any]] | None:
    """Return (function, arguments by name) of call data; None if the contract has no such call."""
    abi = functions(contract).get(data[:4])
    if abi is None:
        return None
    try:
        values = decode([collapse_if_tuple(field) for field in abi["inputs"]], data[4:])
    except (DecodingError, OverflowError):
        return None
    return str(abi["name"]), {
        field["name"]: plain(field, value) for field, value in zip(abi["inputs"], values, strict=True)
    }


def encode_arguments(inputs: Sequence[Mapping[str, Any]], arguments: Sequence[Any]) -> bytes:
    """Return the ABI encoding of arguments: native, or integers as text and bytes as 0x hex.

    Raises:
        ValueError: wrong number of arguments, or one of the wrong type.
    """
    if len(inputs) != len(arguments):
        raise ValueError(f"expected {len(inputs)} arguments, got {len(arguments)}")
    try:
        values = [_native(field, value) for field, value in zip(inputs, arguments, strict=True)]
        return bytes(encode([collapse_if_tuple(dict(field)) for field in inputs], values))
    except (EncodingError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise ValueError(str(error)) from error


def _native(field: Mapping[str, Any], value: Any) -> Any:
    """Return a stored or native value in the form of ``eth_abi``."""
    kind = str(field["type"])
    if kind.endswith("]"):
        element = {**field, "type": kind[: kind.rindex("[")]}
        return [_native(element, item) for item in value]
    if kind == "tuple":
        components = field["components"]
        items = [value[part["name"]] for part in components] if isinstance(value, Mapping) else value
        return tuple(_native(part, item) for part, item in zip(components, items, strict=True))
    if kind.startswith(("uint", "int")) and isinstance(value, str):
        return int(value)
    if kind.startswith("bytes") and isinstance(value, str):
        return bytes.fromhex(value.removeprefix("0x"))
    return value
