"""Preparation of acts: call data, words, role and delay, for a wallet that signs elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eth_abi.abi import encode

from zoo_protocol import abi
from zoo_protocol.acts.parameters import ActError, Kind, duration, exact_zen
from zoo_protocol.acts.roles import role_hash, roles_of
from zoo_protocol.acts.table import ACTS, STAGE_ROLES, Act, Stage, act_of
from zoo_protocol.contracts import CONTRACTS
from zoo_protocol.hashing import from_hex, keccak, to_hex

TIMELOCK = "Timelock"
NO_PREDECESSOR = to_hex(bytes(32))
_OPERATION_TYPES = ["address", "uint256", "bytes", "bytes32", "bytes32"]
_BATCH_TYPES = ["address[]", "uint256[]", "bytes[]", "bytes32", "bytes32"]

_STAGES = {
    "schedule": Stage.PROPOSE,
    "scheduleBatch": Stage.PROPOSE,
    "execute": Stage.EXECUTE,
    "executeBatch": Stage.EXECUTE,
    "cancel": Stage.CANCEL,
}


@dataclass(frozen=True, slots=True)
class Contracts:
    """Deployed contracts: addresses by name, and the timelock's delay in seconds."""

    chain_id: int
    addresses: Mapping[str, str]
    delay_seconds: int

    def name_at(self, address: str) -> str | None:
        """Return the name of the contract at an address; None for any other address."""
        return next((name for name, own in self.addresses.items() if own.lower() == address.lower()), None)


@dataclass(frozen=True, slots=True)
class Call:
    """Call of a contract: address, native tokens in wei, call data."""

    target: str
    value: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Operation:
    """Operation of the timelock: calls, the operation that must precede it, and a salt."""

    calls: tuple[Call, ...]
    salt: str
    predecessor: str = NO_PREDECESSOR
    is_batch: bool = False

    @property
    def id(self) -> str:
        """Return the timelock's id of the operation, 0x hex."""
        rest = [from_hex(self.predecessor), from_hex(self.salt)]
        if self.is_batch:
            return to_hex(keccak(encode(_BATCH_TYPES, [*map(list, self._columns()), *rest])))
        one = self.calls[0]
        return to_hex(keccak(encode(_OPERATION_TYPES, [one.target, one.value, one.data, *rest])))

    def arguments(self) -> list[Any]:
        """Return the arguments that ``schedule`` and ``execute`` have in common."""
        if self.is_batch:
            return [*map(list, self._columns()), self.predecessor, self.salt]
        one = self.calls[0]
        return [one.target, one.value, one.data, self.predecessor, self.salt]

    def _columns(self) -> list[tuple[Any, ...]]:
        return list(zip(*((call.target, call.value, call.data) for call in self.calls), strict=True))


@dataclass(frozen=True, slots=True)
class PreparedAct:
    """One transaction for a person's wallet.

    Attributes:
        key: act; None for an operation of the timelock that the table does not know.
        words: what it does, one sentence per call.
        role: role in ``contract`` that the sender needs; None: any account.
        delay_seconds: time until its effect, as far as the timelock decides it.
        confirmation: phrase that a person types to confirm; None if none is needed.
        amount_wei: ZEN that it moves.
        effects: calls that it makes later as the timelock.
    """

    key: str | None
    stage: Stage
    title: str
    words: tuple[str, ...]
    contract: str
    function: str
    to: str
    data: bytes
    role: str | None
    delay_seconds: int
    confirmation: str | None
    amount_wei: int
    operation: Operation | None = None
    effects: tuple[Call, ...] = ()


def act(key: str) -> Act:
    """Return the act of a key. Raises ActError: unknown."""
    if key not in ACTS:
        raise ActError("act", f"is {key!r:.60}; expected one of {', '.join(ACTS)}")
    return ACTS[key]


def prepare(key: str, arguments: Mapping[str, object], contracts: Contracts, *, salt: bytes) -> PreparedAct:
    """Return the transaction that begins an act: its own call, or the timelock's ``schedule``.

    Args:
        arguments: text by parameter name; lists for those of kind LIST.
        salt: 32 random bytes, so that the same act can be proposed again.

    Raises:
        ActError: unknown act, or a missing, unknown or malformed argument.
    """
    row = act(key)
    values = _parse(row, arguments)
    target = contracts.addresses[row.contract]
    data = _encode(row, values)
    words = (words_of(row, dict(zip([one.name for one in row.parameters], values, strict=True))),)
    amount = sum(value for one, value in zip(row.parameters, values, strict=True) if one.kind is Kind.ZEN)
    confirmation = row.key if row.is_dangerous else None
    if row.via_timelock:
        operation = Operation((Call(target, 0, data),), to_hex(salt))
        return _of_timelock(
            Stage.PROPOSE, operation, contracts, row.title, words, key=key, confirmation=confirmation, amount=amount
        )
    return PreparedAct(
        key=key,
        stage=Stage.DIRECT,
        title=row.title,
        words=words,
        contract=row.contract,
        function=row.function,
        to=target,
        data=data,
        role=row.role,
        delay_seconds=0,
        confirmation=confirmation,
        amount_wei=amount,
    )


def execute(operation: Operation, contracts: Contracts) -> PreparedAct:
    """Return the call that executes a due operation of the timelock."""
    return _stage(Stage.EXECUTE, operation, contracts)


def cancel(operation: Operation, contracts: Contracts) -> PreparedAct:
    """Return the call that cancels a pending operation of the timelock."""
    return _stage(Stage.CANCEL, operation, contracts)


def words_of_calls(calls: Sequence[Call], contracts: Contracts) -> tuple[str, ...]:
    """Return what calls do, one sentence each. Unknown ones show contract and data."""
    return tuple(_explain(one, contracts) for one in calls)


def words_of(row: Act, values: Mapping[str, Any]) -> str:
    """Return an act's sentence with its ABI values."""
    return row.words.format_map({one.name: one.words(values[one.name]) for one in row.parameters})


def act_of_call(call: Call, contracts: Contracts) -> tuple[Stage, str | None] | None:
    """Return (stage, key of the act) of a transaction; None for anything else.

    The key is None for operations that the table does not know, and for cancellations, whose call names only an id.
    """
    if contracts.name_at(call.target) != TIMELOCK:
        known = _decode(call, contracts)
        return None if known is None or known[0].via_timelock else (Stage.DIRECT, known[0].key)
    found = abi.decode_call(TIMELOCK, call.data)
    stage = None if found is None or call.value else _STAGES.get(found[0])
    if found is None or stage is None:
        return None
    targets, values, data = list(found[1].values())[:3] if stage is not Stage.CANCEL else ([], [], [])
    if isinstance(targets, str):
        targets, values, data = [targets], [values], [data]
    made = [
        Call(target, value, bytes.fromhex(one[2:])) for target, value, one in zip(targets, values, data, strict=True)
    ]
    inner = _decode(made[0], contracts) if len(made) == 1 else None
    return stage, None if inner is None else inner[0].key


def cancelled_id(call: Call) -> str:
    """Return the operation that ``cancel`` of the timelock names. Raises ValueError: other call."""
    found = abi.decode_call(TIMELOCK, call.data)
    if found is None or found[0] != "cancel":
        raise ValueError(f"{to_hex(call.data[:4])} is not the call cancel")
    return str(found[1]["id"])


def _stage(stage: Stage, operation: Operation, contracts: Contracts) -> PreparedAct:
    known = {found[0].key for one in operation.calls if (found := _decode(one, contracts)) is not None}
    key = known.pop() if len(known) == 1 and len(operation.calls) == 1 else None
    words = words_of_calls(operation.calls, contracts)
    title = "Timelock operation" if key is None else ACTS[key].title
    confirmation = f"timelock.{stage}"
    amount = sum(_amount(one, contracts) for one in operation.calls)
    return _of_timelock(stage, operation, contracts, title, words, key=key, confirmation=confirmation, amount=amount)


def _of_timelock(
    stage: Stage,
    operation: Operation,
    contracts: Contracts,
    title: str,
    words: tuple[str, ...],
    *,
    key: str | None,
    confirmation: str | None,
    amount: int,
) -> PreparedAct:
    suffix = "Batch" if operation.is_batch else ""
    function, arguments, effects, delay = {
        Stage.PROPOSE: (
            f"schedule{suffix}",
            [*operation.arguments(), contracts.delay_seconds],
            operation.calls,
            contracts.delay_seconds,
        ),
        Stage.EXECUTE: (f"execute{suffix}", operation.arguments(), (), 0),
        Stage.CANCEL: ("cancel", [operation.id], (), 0),
    }[stage]
    verb = {Stage.PROPOSE: "Propose", Stage.EXECUTE: "Execute", Stage.CANCEL: "Cancel"}[stage]
    if stage is Stage.PROPOSE:
        words = (*words, f"It can be executed {duration(contracts.delay_seconds)} after the proposal.")
    return PreparedAct(
        key=key,
        stage=stage,
        title=f"{verb}: {title[0].lower()}{title[1:]}",
        words=words,
        contract=TIMELOCK,
        function=function,
        to=contracts.addresses[TIMELOCK],
        data=abi.encode_call(TIMELOCK, function, arguments),
        role=STAGE_ROLES[stage],
        delay_seconds=delay,
        confirmation=confirmation,
        amount_wei=0 if stage is Stage.CANCEL else amount,
        operation=operation,
        effects=tuple(effects),
    )


def _parse(row: Act, arguments: Mapping[str, object]) -> list[Any]:
    names = [one.name for one in row.parameters]
    for name in arguments:
        if name not in names:
            raise ActError(str(name), f"is not an argument of {row.key}; expected {', '.join(names) or 'none'}")
    values = []
    for one in row.parameters:
        if arguments.get(one.name) in (None, ""):
            raise ActError(one.name, f"is missing; expected {one.expected}")
        value = one.parse(arguments[one.name])
        if one.kind is Kind.ROLE and value not in {role_hash(name) for name in roles_of(row.contract)}:
            raise ActError(one.name, f"is {arguments[one.name]!r}; expected one of {', '.join(roles_of(row.contract))}")
        values.append(value)
    return values


def _encode(row: Act, values: Sequence[Any]) -> bytes:
    try:
        return abi.encode_call(row.contract, row.function, values)
    except ValueError as error:
        raise ActError(None, f"the arguments do not fit {row.contract}.{row.function}: {error}") from error


def _decode(call: Call, contracts: Contracts) -> tuple[Act, dict[str, Any]] | None:
    name = contracts.name_at(call.target)
    found = None if name not in CONTRACTS else abi.decode_call(name, call.data)
    row = None if name is None or found is None else act_of(name, found[0])
    return None if row is None or found is None or call.value else (row, found[1])


def _explain(call: Call, contracts: Contracts) -> str:
    known = _decode(call, contracts)
    if known is not None:
        return words_of(*known)
    name = contracts.name_at(call.target)
    found = None if name not in CONTRACTS else abi.decode_call(name, call.data)
    sent = f", with {exact_zen(call.value).replace('ZEN', 'native tokens')}" if call.value else ""
    if name is None:
        return f"Call the unknown contract {call.target} with {to_hex(call.data)}{sent}."
    if found is None:
        return f"Call {name} with the unknown data {to_hex(call.data)}{sent}."
    arguments = ", ".join(f"{key}={value}" for key, value in found[1].items())
    return f"Call {name}.{found[0]}({arguments}){sent}."


def _amount(call: Call, contracts: Contracts) -> int:
    known = _decode(call, contracts)
    if known is None:
        return 0
    row, values = known
    return sum(int(values[one.name]) for one in row.parameters if one.kind is Kind.ZEN)
