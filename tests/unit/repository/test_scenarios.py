"""contracts/SCENARIOS.md names the Solidity test of each scenario, all of them."""

import json
import re
from pathlib import Path

from zoo_protocol.contracts import CONTRACTS

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "contracts" / "SCENARIOS.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w.]+\.t\.sol)::(\w+)`", PAGE)))


def _rows_of_calls() -> dict[str, str]:
    rows = PAGE.split("## Front-running, call by call")[1].split("\n## ")[0]
    return {
        call: row
        for row in rows.splitlines()
        if row.startswith("- `")
        for call in re.findall(r"`([\w*]+\.\w+)`", row.split(": ")[0])
    }


def test_every_test_named_on_page_exists() -> None:
    assert len(NAMED) > 100
    sources = {path.name: path.read_text("utf-8") for path in (ROOT / "contracts" / "test").rglob("*.t.sol")}
    assert not [f"{file}::{name}" for file, name in NAMED if f"function {name}(" not in sources.get(file, "")]


def test_front_running_lists_exactly_state_changing_calls() -> None:
    rows = _rows_of_calls()
    shared = {call.removeprefix("*.") for call in rows if call.startswith("*.")}
    calls = [(contract, function) for contract in CONTRACTS for function in _functions_that_change_state(contract)]
    own = {f"{contract}.{function}" for contract, function in calls if function not in shared}
    assert {call for call in rows if not call.startswith("*.")} == own
    assert shared <= {function for _, function in calls}
    assert all("::" in row for row in rows.values())


def _functions_that_change_state(contract: str) -> set[str]:
    artifact = ROOT / "zoo_protocol" / "artifacts" / f"{contract}.json"
    return {
        entry["name"]
        for entry in json.loads(artifact.read_text(encoding="utf-8"))["abi"]
        if entry["type"] == "function" and entry["stateMutability"] in ("nonpayable", "payable")
    }
