"""Benchmarks that start processes or need data run and print their rows."""

import json
import os
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
    "averaging": {
        *("ours_mb_s", "error", "failed_rounds", "failed_rounds_with_a_kill", "ours_8bit_mb_s", "ours_8bit_error"),
        *("ours_8bit_failed_rounds", "ours_8bit_failed_rounds_with_a_kill"),
    },
    "checkpoint": {"write_ratio", "read_ratio", "resume_seconds", "shared_block_share", "write_mb_s", "read_mb_s"},
    "verification": {
        *("detection_outside_bounds", "detection_outside_pointwise", "lazy_outside_bounds", "lazy_outside_pointwise"),
        *("false_slashes", "honest_replays", "smallest_cheats_found", "false_payloads_refused"),
        *("hardware_check_bronze", "extra_compute_points", "hashing_share", "dispute_transactions"),
        *("cheat_profit_max", "burst_profit_max", "lazy_profit_max", "honest_profit_min"),
    },
    "console": {"worst_ms", "worst_to_queries", "worst_paint_ms", "worst_kb"},
    "codec": {"encode_gb_s", "decode_gb_s", "bits_per_parameter", "entropy_excess"},
    "placement": {
        *("decisions_per_second_1213", "decisions_per_second_10000", "wait_p50_seconds", "brute_force_gap"),
        *("capacity_violations", "model_violations"),
    }
    | {f"{rule}{row}" for rule in ("", "first_fit_", "random_") for row in ("wait_p99_seconds", "utilisation")},
    "wan": {"efficiency_1b", "efficiency_1b_unset", "quote_error", "real_run_error", "real_run_delay_error"},
    "communication": {
        f"{method}_{figure}"
        for method in (
            *("ddp", "ddp_adamw", "ddp_muon", "powersgd_1", "powersgd_4", "diloco", "sparseloco", "default"),
            *("at_20x", "at_70x", "at_1000x", "at_4000x"),
        )
        for figure in ("loss", "up_ratio", "down_ratio")
    }
    | {f"{method}_token_factor" for method in ("default", "powersgd_1", "powersgd_4", "diloco", "sparseloco")}
    | {"default_loss_gap", "at_1000x_loss_gap", "equal_bytes_deficit"},
}


def run(name: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *options],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )


@pytest.mark.parametrize("name", ROWS)
def test_quick_run_reports_expected_rows_without_errors(name: str, tmp_path: Path) -> None:
    done = run(name, "--quick", "--json", ZOO_TRACE_DIR=str(tmp_path))  # there is no trace
    assert done.returncode == 0, done.stderr[-2000:]
    rows = json.loads(done.stdout)["rows"]
    values = {row["name"]: row["value"] for row in rows}
    assert values.keys() >= ROWS[name]
    for count in ("errors", "capacity_violations", "model_violations", "false_slashes"):
        assert values.get(count, 0) == 0
    assert values.get("smallest_cheats_found", 100) == 100
    if name == "placement":
        assert all("made-up" in row["note"] for row in rows)


def test_placement_names_missing_tool_and_searched_path(tmp_path: Path) -> None:
    done = run("placement", ZOO_TRACE_DIR=str(tmp_path))
    assert done.returncode == 1
    assert str(tmp_path) in done.stderr
    assert "nodes.csv" in done.stderr


@pytest.mark.parametrize("name", ["api", "chain", "gas", "verification"])
def test_benchmark_reports_missing_chain_before_measuring(name: str, tmp_path: Path) -> None:
    done = run(name, "--quick", "--json", ZOO_ANVIL=str(tmp_path / "anvil"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    reason = f"ZOO_ANVIL is {tmp_path}/anvil; expected a file"
    assert done.stderr.splitlines()[-1] == f"python -m benchmarks.{name}: {reason}"
