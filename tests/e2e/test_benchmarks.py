"""The benchmarks that start processes of their own run, and print the rows that are read by name."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLIENTS = (1, 16, 64)
ROWS = {
    "api": {
        f"{row}_{clients}"
        for row in ("submit_per_second", "submit_p99_ms", "read_per_second", "submit_ratio")
        for clients in CLIENTS
    }
    | {"errors"},
    "verification": {
        "detection_outside_bounds",
        "false_slashes",
        "honest_replays",
        "smallest_cheats_found",
        "extra_compute_points",
        "hashing_share",
        "dispute_transactions",
        "cheat_profit_max",
        "honest_profit_min",
    },
    "codec": {"encode_gb_s", "decode_gb_s", "bits_per_parameter", "entropy_excess"},
}


@pytest.mark.parametrize("name", ROWS)
def test_a_benchmark_runs(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--quick", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    values = {row["name"]: row["value"] for row in json.loads(done.stdout)["rows"]}
    assert values.keys() >= ROWS[name]
    assert values.get("errors", 0) == 0
    assert values.get("false_slashes", 0) == 0
    assert values.get("smallest_cheats_found", 100) == 100
