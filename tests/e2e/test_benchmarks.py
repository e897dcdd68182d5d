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
    "codec": {"encode_gb_s", "decode_gb_s", "bits_per_parameter", "entropy_excess"},
    "communication": {
        f"{method}_{figure}"
        for method in (
            "ddp",
            "ddp_adamw",
            "ddp_muon",
            "powersgd_1",
            "powersgd_4",
            "diloco",
            "sparseloco",
            "default",
            "at_20x",
            "at_70x",
            "at_1000x",
            "at_4000x",
        )
        for figure in ("loss", "up_ratio", "down_ratio")
    }
    | {"default_loss_gap", "at_1000x_loss_gap", "equal_bytes_deficit"},
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
