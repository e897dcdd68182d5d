"""Gas of the contracts: within the published limits, and not above the last snapshot."""

import json
from pathlib import Path

import pytest

from benchmarks import gas

SNAPSHOT = json.loads((Path(gas.__file__).with_name("gas.json")).read_text())
TOLERANCE = 1.05
LIMITS = {
    "stake": 110_000,
    "deposit": 130_000,
    "open_job": 110_000,
    "commit_window": 70_000,
    "settle_1000_units": 120_000,
    "claim_first": 75_000,
    "claim_next": 20_000,
    "slash": 100_000,
    "per_unit_1000": 2_000,
    "per_unit_100000": 100,
}


@pytest.fixture(scope="module")
def measured() -> dict[str, float]:
    return {row.name: row.max for row in gas.measure(quick=True)}


def test_every_gas_promise_holds_in_worst_case(measured: dict[str, float]) -> None:
    assert {name: measured[name] for name, limit in LIMITS.items() if measured[name] > limit} == {}


def test_gas_did_not_rise(measured: dict[str, float]) -> None:
    before = {row["name"]: row["max"] for row in SNAPSHOT["rows"]}
    assert set(before) == set(measured)
    fixed = {name: cost for name, cost in measured.items() if name != "dispute_draw"}  # its number of tries is random
    assert {name: (before[name], cost) for name, cost in fixed.items() if cost > before[name] * TOLERANCE} == {}
