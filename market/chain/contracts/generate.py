"""Write ``market/chain/contracts/bindings.py`` from the contracts' artifacts.

``python -m market.chain.contracts.generate`` writes the file; run it after a change of the artifacts or ``USED``.
``--check`` compares it instead. A removed or changed function then fails here or in the type checker.
"""

import argparse
import keyword
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo_protocol.contracts import artifact

USED: Mapping[str, Sequence[str]] = {
    "ZenToken": ("balanceOf", "totalSupply", "nonces", "approve", "allowance"),
    "ProviderStaking": ("slash", "stakeOf", "atRisk", "isJailed", "qualifies"),
    "JobEscrow": ("deposit", "openJob", "balances", "settle", "collectFees", "returnStruck", "jobs", "batches"),
    "WorkWindows": ("commitWindow", "latchSeed"),
    "Omissions": ("respond", "bond"),
    "Attestations": ("attest", "isAccepted"),
    "Disputes": (
        "open",
        "rejectLate",
        "nameStep",
        "drawCommittee",
        "submitVerdict",
        "proveContradiction",
        "proveWrongVerdict",
        "expire",
        "replaceCommittee",
        "dismiss",
        "withhold",
        "restore",
        "withdraw",
        "evict",
        "disputes",
        "units",
        "credits",
        "pendingDraws",
    ),
    "Treasury": ("available", "spent", "received"),
    "Emission": ("release",),
    "Rewards": ("postEpoch", "currentEpoch", "pendingEpoch", "minEpoch", "apyBps", "baseBound", "postBound", "paidOut"),
}
"""Functions and views that the market uses, by contract."""

TARGET = Path(__file__).with_name("bindings.py")


_HEADER = '''"""Contract functions that the market uses, written by ``python -m market.chain.contracts.generate``.

A function that changes the chain gives a :class:`Call` for ``queue_intent(session, ..., **call)``, a view gives a
:class:`View` for ``ChainViews``. Names and order are the contracts'. Integers are ``int``, addresses and bytes 0x hex.
"""

from collections.abc import Sequence
from typing import TypedDict

from market.chain.contracts.codec import Call, View, call
'''
Field = Mapping[str, Any]


def generate() -> str:
    """Return the module's text, formatted by ruff.

    Raises:
        ValueError: a contract lacks a function, or two structs have one name.
    """
    structs: dict[str, str] = {}
    classes = [_contract(contract, functions, structs) for contract, functions in USED.items()]
    text = "\n\n".join([_HEADER, *structs.values(), *classes])
    formatter = [sys.executable, "-m", "ruff", "format", "--stdin-filename", __file__, "-"]
    return subprocess.run(formatter, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout


def _contract(contract: str, functions: Sequence[str], structs: dict[str, str]) -> str:
    abi = artifact(contract).abi
    parts = [f"class {contract}:"]
    for name in functions:
        found = [entry for entry in abi if entry["type"] == "function" and entry["name"] == name]
        if len(found) != 1:
            raise ValueError(f"{contract} has {len(found)} functions {name}")
        parts.append(_function(contract, found[0], structs))
    return "\n".join(parts)


def _function(contract: str, entry: Field, structs: dict[str, str]) -> str:
    inputs = entry["inputs"]
    names = [_name(field, position) for position, field in enumerate(inputs)]
    made, result = "call", "Call"
    if entry["stateMutability"] in ("view", "pure"):
        made, result = "View", f"View[{_result(contract, entry, structs)}]"
    parameters = ", ".join(f"{name}: {_type(field, structs)}" for name, field in zip(names, inputs, strict=True))
    body = f'return {made}("{contract}", "{entry["name"]}", [{", ".join(names)}])'
    return f"    @staticmethod\n    def {entry['name']}({parameters}) -> {result}:\n        {body}\n"


def _result(contract: str, entry: Field, structs: dict[str, str]) -> str:
    outputs = entry["outputs"]
    if len(outputs) == 1:
        return _type(outputs[0], structs).replace("str | bytes", "str")  # bytes may be arguments, but are never results
    return _struct(f"{contract}{entry['name'][0].upper()}{entry['name'][1:]}", outputs, structs)


def _type(field: Field, structs: dict[str, str]) -> str:
    kind = str(field["type"])
    if kind.endswith("]"):
        internal = str(field["internalType"])
        element = {**field, "type": kind[: kind.rindex("[")], "internalType": internal[: internal.rindex("[")]}
        return f"Sequence[{_type(element, structs)}]"
    if kind == "tuple":
        owner, _, name = str(field["internalType"]).removeprefix("struct ").rpartition(".")
        return _struct(owner.removeprefix("I") + name, field["components"], structs)
    if kind.startswith(("uint", "int")):
        return "int"
    return {"bool": "bool", "address": "str", "string": "str"}.get(kind, "str | bytes")


def _struct(name: str, fields: Iterable[Field], structs: dict[str, str]) -> str:
    lines = [f"    {_name(field, position)}: {_type(field, structs)}\n" for position, field in enumerate(fields)]
    text = f"class {name}(TypedDict):\n" + "".join(lines)
    if structs.setdefault(name, text) != text:
        raise ValueError(f"two structs would be called {name}")
    return name


def _name(field: Field, position: int) -> str:
    name = str(field["name"]) or f"argument{position}"
    return name + "_" if keyword.iskeyword(name) else name


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m market.chain.contracts.generate")
    parser.add_argument("--check", action="store_true", help="compare only; exit with 1 if the file is not current")
    options = parser.parse_args(arguments)
    text = generate()
    if options.check:
        if TARGET.read_text() == text:
            return 0
        print(f"{TARGET} differs from the artifacts; run: python -m market.chain.contracts.generate", file=sys.stderr)
        return 1
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
