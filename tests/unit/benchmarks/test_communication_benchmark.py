"""Results of the communication benchmark, and its resumption."""

import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kit.training import TINY

from benchmarks import averaging, communication
from benchmarks.communication import DIVERGED, OutcomeCache, Run, outcomes_of, rows_of
from benchmarks.report import end, print_report, row, run
from benchmarks.training.communication_settings import (
    FULL,
    METHODS,
    OURS,
    PEERS,
    QUICK,
    TRIALS,
    Scale,
    fits,
    specification,
)
from benchmarks.training.equal_bytes import equal_bytes_deficit
from benchmarks.training.trainers import Outcome
from training_gym.spec.config import TrainingConfig

UNIT = 1000.0
"""Bytes of the dense run."""


def outcomes(**losses: float) -> dict[str, Outcome]:
    found = {name: Outcome(2.0, UNIT / 100, UNIT / 100) for name in METHODS}
    found |= {name: Outcome(2.0, UNIT, UNIT) for name in ("ddp_adamw", "ddp_muon")}
    return found | {name: Outcome(loss, found[name].up, found[name].down) for name, loss in losses.items()}


def test_rows_are_ratios_and_gaps_seed_by_seed() -> None:
    seeds = [
        outcomes(ddp_adamw=1.0, ddp_muon=1.25, default=1.1, at_1000x=1.5),
        outcomes(ddp_adamw=2.0, ddp_muon=1.0, default=1.3, at_1000x=1.2),
    ]
    rows = {one.name: one for one in rows_of(seeds, UNIT, {})}
    assert {f"{name}_{what}" for name in METHODS for what in ("loss", "up_ratio", "down_ratio")} < rows.keys()
    assert (rows["ddp_loss"].min, rows["ddp_loss"].max) == (1.0, 1.0)  # the better of each seed
    assert (rows["default_loss_gap"].min, rows["default_loss_gap"].max) == pytest.approx((0.1, 0.3))
    assert rows["at_1000x_loss_gap"].value == pytest.approx((0.5 + 0.2) / 2)
    assert rows["default_up_ratio"].value == 100


def test_default_row_runs_product_defaults() -> None:
    run_spec = specification(METHODS["default"], FULL, 7).training
    scale = {name: getattr(run_spec, name) for name in ("batch_size", "rounds", "segment_steps")}
    assert run_spec == TrainingConfig(seed=7, **scale)


def test_unmeasured_method_has_no_row() -> None:
    found = outcomes()
    del found["torchft_diloco"]
    rows = {one.name: one for one in rows_of([found, outcomes()], UNIT, {})}
    assert "left out" in rows["equal_bytes_deficit"].note
    assert "torchft_diloco" in rows["equal_bytes_deficit"].note
    assert "left out" not in {one.name: one for one in rows_of([outcomes()], UNIT, {})}["equal_bytes_deficit"].note
    assert not [one for one in rows_of([found], UNIT, {}) if one.name.startswith("torchft")]


@pytest.mark.usefixtures("own_logs")
def test_report_lacking_peer_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("communication", "averaging"):
        name = {"communication": "TORCHFT_PYTHON", "averaging": "PEER_PYTHON"}[module]
        monkeypatch.setattr(f"benchmarks.{module}.{name}", tmp_path / "python")
    found = outcomes()
    assert communication.missing_results([found]) == ""
    del found["torchft_diloco"]
    for missing in (communication.missing_results([outcomes(), found]), averaging.missing_results()):
        assert "make bench-peers" in missing
        with pytest.raises(SystemExit, match="make bench-peers"):
            end("communication", missing)
    end("communication", "")
    measured: list[str] = []
    for options, fails in (["--json"], True), (["--json", "--quick"], False):
        with pytest.raises(SystemExit) if fails else nullcontext():
            run("averaging", lambda quick: [row("x", "x", [1.0])], options, lacks=averaging.missing_results)
        measured.append(capsys.readouterr().out)
    assert all('"x"' in report for report in measured)


def test_diverged_method_is_reported_without_savings(capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of([outcomes() | {"at_20x": DIVERGED}], UNIT, {})
    found = {one.name: one.value for one in rows}
    assert (found["at_20x_loss"], found["at_20x_up_ratio"], found["at_20x_down_ratio"]) == (math.inf, 0, 0)
    print_report("communication", rows, 1.0, as_json=False)
    assert "| at_20x_loss | inf | inf | inf |" in capsys.readouterr().out


def test_more_expensive_points_are_excluded_at_equal_bytes() -> None:
    found = outcomes() | {name: Outcome(3.0, 10, 10) for name in OURS}
    found |= {"at_20x": Outcome(1.0, 50, 50), "default": Outcome(2.2, 5, 5)}
    found["sparseloco"] = Outcome(1.5, 7, 100)
    assert equal_bytes_deficit(found, OURS, PEERS) == (pytest.approx(2.2 / 1.5 - 1), "sparseloco")
    found["sparseloco"] = Outcome(1.5, 60, 60)  # now the better and more expensive point counts too
    deficit = equal_bytes_deficit(found, OURS, PEERS)
    assert deficit
    assert deficit[0] == pytest.approx(2.2 / 2.0 - 1)


@pytest.mark.parametrize("scale", [FULL, QUICK])
def test_every_method_trains_on_as_many_tokens(scale: Scale) -> None:
    for method in (METHODS | TRIALS).values():
        assert fits(method, scale)
        training = specification(method, scale, 1).training
        assert (training.batch_size, training.seed) == (scale.batch_size, 1)
    assert not fits(METHODS["at_4000x"], replace(FULL, steps=600))  # rounds of 250 steps


def test_token_factor_interpolates_annealed_dense_runs() -> None:
    curve = {100: 4.0, 400: 2.0, 1600: 1.0}
    factors = [communication.token_factor(loss, curve) for loss in (1.0, math.sqrt(2), 2.0, 4.0, math.inf, 0.5)]
    assert factors == pytest.approx([1, 2, 4, 16, 16, 1])
    found = outcomes(default=2.0, diloco=9.0, ddp_muon=1.0) | {f"at_{n}": Outcome(curve[n], 1, 1) for n in (100, 400)}
    rows = {one.name: one for one in rows_of([found], UNIT, {"at_100": 100, "at_400": 400, "ddp_muon": 1600})}
    assert (rows["default_token_factor"].value, rows["default_token_factor"].note) == (pytest.approx(4), "")
    assert "at least" in rows["diloco_token_factor"].note


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.long)])
def test_interrupted_benchmark_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int) -> None:
    tokens = np.frombuffer(bytes(range(97, 123)) * 400, np.uint8)
    monkeypatch.setattr("benchmarks.communication.whole_library", lambda: (tokens, tokens, tokens))  # of this process
    monkeypatch.setattr("benchmarks.training.trainers.WORKERS", 2)
    tiny = Scale(TINY, 10, 1, 2, ())
    runs = [Run("at_20x", METHODS["at_20x"], tiny, seed, "validation") for seed in (1, 2)]
    first = outcomes_of(runs, OutcomeCache(tmp_path / "kept.jsonl"), processes)
    assert first.keys() == set(runs)
    monkeypatch.setattr("benchmarks.communication.train", lambda run: pytest.fail("was kept"))
    again = OutcomeCache(tmp_path / "kept.jsonl")
    assert outcomes_of(runs, again, 1) == first
    assert again.found == 2
    other = [Run("at_20x", METHODS["at_20x"], tiny, 3, "validation")]
    assert not outcomes_of(other, again, 0)  # --kept measures nothing
    with pytest.raises(pytest.fail.Exception):  # another seed is another run
        outcomes_of(other, again, 1)


def test_seed_without_dense_runs_has_losses_without_gap() -> None:
    found = {"default": Outcome(2.0, 10, 10)}
    names = {one.name for one in rows_of([found], UNIT, {})}
    assert "default_loss" in names
    assert not {"default_loss_gap", "equal_bytes_deficit"} & names
