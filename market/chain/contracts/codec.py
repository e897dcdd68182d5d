"""ABI encoding and decoding of the contracts' calls and events."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypedDict, TypeVar

from eth_abi.abi import decode
from eth_utils.abi import collapse_if_tuple, event_abi_to_log_topic, function_abi_to_4byte_selector
from eth_utils.address import to_checksum_address

from market.chain.errors import BadArguments
from zoo_protocol.abi import encode_arguments
from zoo_protocol.contracts import CONTRACTS, artifact
from zoo_protocol.reverts import plain

Result = TypeVar("Result")
Json = None | bool | str | list["Json"] | dict[str, "Json"]


@dataclass(frozen=True, slots=True)
class Deployment:
    """Addresses of one network's contracts; indexing begins at ``start_block``."""

    network: str
    chain_id: int
    start_block: int
    contracts: Mapping[str, str]

    def address(self, contract: str) -> str:
        return self.contracts[contract]

    def name_at(self, address: str) -> str | None:
        """Return the name of the contract at an address; None for any other address."""
        checksummed = to_checksum_address(address)
        return next((name for name, own in self.contracts.items() if own == checksummed), None)

    def save(self, path: Path) -> None:
        """Write the JSON file atomically."""
        partial = path.with_suffix(path.suffix + ".partial")
        partial.write_text(json.dumps(asdict(self), indent=2) + "\n")
        partial.replace(path)

    @classmethod
    def load(cls, path: Path) -> "Deployment":
        """Read a deployment file.

        Raises:
            ValueError: the file is not a deployment; the message names the field.
        """
        try:
            document = json.loads(path.read_text())
            contracts = {name: to_checksum_address(document["contracts"][name]) for name in CONTRACTS}
            return cls(str(document["network"]), int(document["chain_id"]), int(document["start_block"]), contracts)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a deployment file: {error!r}") from error


class Call(TypedDict):
    """Arguments of ``queue_intent`` for a call that changes the chain."""

    contract: str
    function: str
    arguments: list[Any]


def call(contract: str, function: str, arguments: list[Any]) -> Call:
    return Call(contract=contract, function=function, arguments=arguments)


@dataclass(frozen=True, slots=True)
class View(Generic[Result]):
    """Call that reads the chain, with the type of its result."""

    contract: str
    function: str
    arguments: list[Any]


@dataclass(frozen=True, slots=True)
class ChainEvent:
    """Decoded log: ints, checksummed addresses, bytes as 0x hex, ``timestamp`` in Unix seconds."""

    contract: str
    name: str
    args: Mapping[str, Any]
    tx_hash: str
    block_number: int
    block_hash: str
    log_index: int
    timestamp: int


def to_json(value: Any) -> Json:
    """Return call arguments for storage: integers as decimal strings, bytes as 0x hex."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return str(value)
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    raise BadArguments(f"{type(value).__name__} cannot be a call argument")


def encode_call(contract: str, function: str, arguments: Sequence[Any]) -> bytes:
    """Return the call data of arguments, native or from ``to_json``.

    Raises:
        BadArguments: unknown function, wrong number of arguments, or one of the wrong type.
    """
    selector, inputs = _call_form(contract, function)
    return selector + _encode(f"{contract}.{function}", inputs, arguments)


def encode_constructor(contract: str, arguments: Sequence[Any]) -> bytes:
    """Return the creation code with its constructor arguments. Raises BadArguments."""
    built = artifact(contract)
    inputs: list[dict[str, Any]] = next((item["inputs"] for item in built.abi if item["type"] == "constructor"), [])
    return _bytes(built.bytecode) + _encode(f"{contract} constructor", inputs, arguments)


def decode_result(contract: str, function: str, result: bytes) -> Any:
    """Return the decoded result of a view: a single value, or a dict by name."""
    outputs = _entry(contract, "function", function)["outputs"]
    values = decode([collapse_if_tuple(output) for output in outputs], result)
    if len(outputs) == 1:
        return plain(outputs[0], values[0])
    return {output["name"]: plain(output, value) for output, value in zip(outputs, values, strict=True)}


def decode_log(contract: str, topics: Sequence[str], data: bytes) -> tuple[str, dict[str, Any]] | None:
    """Return (event name, arguments) of a contract's log; None for an unknown event."""
    abi = _events(contract).get(topics[0]) if topics else None
    if abi is None:
        return None
    plain_inputs = [field for field in abi["inputs"] if not field["indexed"]]
    values = iter(decode([collapse_if_tuple(field) for field in plain_inputs], data))
    indexed = iter(topics[1:])
    args = {}
    for field in abi["inputs"]:
        # The topic of an indexed value type is its ABI encoding; the contracts index no dynamic types.
        value = decode([field["type"]], _bytes(next(indexed)))[0] if field["indexed"] else next(values)
        args[field["name"]] = plain(field, value)
    return str(abi["name"]), args


def event_topic(contract: str, event: str) -> str:
    """Return the first topic of an event's logs.

    Raises:
        BadArguments: the contract has no such event.
    """
    for topic, abi in _events(contract).items():
        if abi["name"] == event:
            return topic
    raise BadArguments(f"{contract} has no event {event!r}")


@cache
def _events(contract: str) -> dict[str, dict[str, Any]]:
    events: list[Any] = [item for item in artifact(contract).abi if item["type"] == "event"]
    return {"0x" + event_abi_to_log_topic(item).hex(): item for item in events}


@cache
def _entry(contract: str, kind: str, name: str) -> Any:
    if contract not in CONTRACTS:
        raise BadArguments(f"unknown contract {contract!r}; known: {', '.join(CONTRACTS)}")
    for item in artifact(contract).abi:
        if item["type"] == kind and item["name"] == name:
            return item
    raise BadArguments(f"{contract} has no {kind} {name!r}")


@cache
def _call_form(contract: str, function: str) -> tuple[bytes, Any]:
    abi = _entry(contract, "function", function)
    return bytes(function_abi_to_4byte_selector(abi)), abi["inputs"]


def _encode(what: str, inputs: Sequence[dict[str, Any]], arguments: Sequence[Any]) -> bytes:
    try:
        return encode_arguments(inputs, arguments)
    except ValueError as error:
        signature = ", ".join(f"{collapse_if_tuple(dict(field))} {field['name']}" for field in inputs)
        raise BadArguments(f"{what}({signature}): {error}") from error


def _bytes(value: str) -> bytes:
    return bytes.fromhex(value.removeprefix("0x"))
