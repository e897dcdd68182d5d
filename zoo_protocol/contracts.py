"""ABI and creation bytecode of the contracts, as committed in ``zoo_protocol/artifacts``.

``python contracts/build.py --write`` builds them; a test rebuilds them from the Solidity source and compares.
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
"""Names of the deployable contracts, in the order of deployment."""


@dataclass(frozen=True, slots=True)
class ContractArtifact:
    """Name, ABI and creation code of one contract."""

    name: str
    abi: list[dict[str, Any]]
    bytecode: str
    """Creation code as 0x hex; constructor arguments are appended to it."""


@cache
def artifact(name: str) -> ContractArtifact:
    """Return the committed artifact of contract ``name``. Raises ValueError: unknown."""
    if name not in CONTRACTS:
        raise ValueError(f"contract {name!r} is unknown; expected one of {', '.join(CONTRACTS)}")
    text = (files("zoo_protocol") / "artifacts" / f"{name}.json").read_text(encoding="utf-8")
    document = json.loads(text)
    return ContractArtifact(document["contractName"], document["abi"], document["bytecode"])
