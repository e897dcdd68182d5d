"""ABI and creation bytecode of our contracts, as committed in ``zoo_protocol/artifacts``.

They are built by ``python contracts/build.py --write``; a test rebuilds them from the Solidity source and compares.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

CONTRACTS = (
    "Timelock",
    "ZenToken",
    "Treasury",
    "ProviderStaking",
    "WorkWindows",
    "JobEscrow",
    "Disputes",
    "Omissions",
    "Emission",
    "Rewards",
    "Attestations",
)
"""Names of the deployable contracts, in the order in which they are deployed."""


@dataclass(frozen=True, slots=True)
class ContractArtifact:
    """What a client needs of one contract."""

    name: str
    abi: list[dict[str, Any]]
    bytecode: str
    """Creation code as 0x hex; constructor arguments are appended to it."""


@cache
def artifact(name: str) -> ContractArtifact:
    """The committed artifact of contract ``name``.

    Raises:
        ValueError: if there is no such contract.
    """
    if name not in CONTRACTS:
        raise ValueError(f"no contract {name!r}; there are {', '.join(CONTRACTS)}")
    text = (files("zoo_protocol") / "artifacts" / f"{name}.json").read_text(encoding="utf-8")
    document = json.loads(text)
    return ContractArtifact(document["contractName"], document["abi"], document["bytecode"])
