"""Corpus, runs and kept results of the realistic part of the communication benchmark."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.realistic import part
from benchmarks.realistic.corpus import Corpus, read_corpus
from benchmarks.realistic.outcomes import Outcomes, Run
from benchmarks.realistic.runs import KeptState, Note, Result, dense, rounds, train_units
from benchmarks.realistic.settings import CORE, DENSE, GPU, METHODS, PROXY, QUICK, TRIALS, Size, specification
from benchmarks.realistic.trial_runs import growing_plan
from benchmarks.training.communication_settings import Method, rounds_of
from training_gym.model.layout import initial_parameters
from training_gym.units.replica_state import fresh_slot_state

TOKENS = np.random.default_rng(1).integers(0, 500, 4_000).astype(np.uint16)
CORPUS = Corpus(dict.fromkeys(("train", "tuning", "validation"), np.sort(TOKENS)), 0, "c" * 16)
TINY = replace(QUICK, steps=30, training=QUICK.training | {"learning_rate": 0.03, "muon_learning_rate": 0.1})


def train(how: str, folder: Path, note: Note = lambda _: None) -> Result:
    method = {**METHODS, **TRIALS}[how]
    spec = specification(method, TINY, 1)
    run = dense if method.how == "dense" else rounds
    return run(spec, CORPUS, "validation", KeptState(folder, 0), "cpu", note)


@pytest.mark.parametrize(("how", "loss"), [("dense", 4.3048), ("rounds of 15", 4.4181)])
def test_interrupted_run_ends_as_whole_one(tmp_path: Path, how: str, loss: float) -> None:
    def stop(_: str) -> None:
        raise KeyboardInterrupt

    whole = train(how, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(how, tmp_path / "stopped", stop)
    assert train(how, tmp_path / "stopped") == whole
    # Another loss here is another result of training: kept runs are void, and `VERSION` must rise.
    assert whole.loss == pytest.approx(loss, rel=1e-4)


def test_interrupted_removal_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(folder: Path, **_: bool) -> None:
        for path in sorted(folder.glob("*"))[-1:]:
            path.unlink()
            raise KeyboardInterrupt

    folder = tmp_path / "state"
    KeptState(folder, 0).save({"round": 1}, lambda: {"model": b"1"})
    with monkeypatch.context() as patch:
        patch.setattr("benchmarks.realistic.runs.shutil.rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            KeptState(folder, 0).save({"round": 2}, lambda: {"model": b"2"})
    assert KeptState(folder, 0).load() == ({}, {})
    KeptState(folder, 0).save({"round": 3}, lambda: {"model": b"3"})
    assert KeptState(folder, 0).load() == ({"round": 3}, {"model": b"3"})


def test_unfinished_run_continues_on_equal_text_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(CORPUS, tokens=dict.fromkeys(CORPUS.tokens, TOKENS), digest="d" * 16)
    run = Run("rounds of 15", TRIALS["rounds of 15"], TINY, 1)

    def measured(corpus: Corpus, states: Path, stops: bool) -> float:
        def noted(title: str, text: str) -> None:
            if stops:
                raise KeyboardInterrupt

        monkeypatch.setattr(part, "read_corpus", lambda *_: corpus)
        monkeypatch.setattr(part, "KeptState", lambda folder: KeptState(folder, 0))
        monkeypatch.setattr(part, "_note", noted)
        kept = Outcomes(states / "kept.jsonl")
        part.measure([run], kept, states)
        found = kept.of(run, corpus.digest)
        assert found is not None
        return found[0].loss

    with pytest.raises(KeyboardInterrupt):
        measured(CORPUS, tmp_path / "a", True)
    assert measured(other, tmp_path / "a", False) == measured(other, tmp_path / "b", False)


def test_kept_run_needs_equal_settings(tmp_path: Path) -> None:
    path, run = tmp_path / "kept.jsonl", Run("ours", METHODS["ours"], CORE, 1)
    Outcomes(path).add(run, "c", Result(1.0, 2.0, 3.0, 0, [1.5]))
    kept = Outcomes(path)
    assert kept.of(run, "c") == (Result(1.0, 2.0, 3.0, 0, [1.5]), "c")
    assert kept.of(run) is not None
    others = [
        Run("ours", METHODS["ours"], CORE, 2),
        Run("ours", METHODS["ours"], GPU, 1),
        Run("diloco", METHODS["diloco"], CORE, 1),
        Run("ours", METHODS["ours"], CORE, 1, "tuning"),
        Run("dense", DENSE, CORE, 1, steps=332),
    ]
    assert [kept.of(other) for other in others] == [None] * len(others)
    assert kept.of(run, "d") is None


def test_kept_run_lacks_newer_setting(tmp_path: Path) -> None:
    path, run = tmp_path / "kept.jsonl", Run("ours", METHODS["ours"], CORE, 1)
    Outcomes(path).add(run, "c", Result(1.0, 2.0, 3.0, 0, []))
    line = json.loads(path.read_text())
    del line["run"]["settings"]["gradient_clip"]  # as if added later, with the default 1.0
    path.write_text(json.dumps(line) + "\n")
    assert Outcomes(path).of(run) is not None
    line["run"]["settings"]["removed"] = 1
    path.write_text(json.dumps(line) + "\n")
    assert Outcomes(path).of(run) is None


def test_realistic_rows_compare_within_seed() -> None:
    curve = {351: 3.8, 432: 3.6, 540: 3.4}
    found = {f"dense_{steps}": Result(loss, 1.0, 1.0, 0, []) for steps, loss in curve.items() if steps != 540}
    sent = 4 * CORE.model.num_parameters() * CORE.steps
    found |= {"dense": Result(3.4, sent, sent, 0, []), "ours": Result(3.6, sent / 250, sent / 200, 2, [])}
    rows = {one.name: one for one in part.rows_of(CORE, [found, {}], "realistic")}
    assert rows["realistic_token_factor"].value == pytest.approx(540 / 432)
    assert rows["realistic_loss_gap"].value == pytest.approx(3.6 / 3.4 - 1)
    assert (rows["realistic_up_ratio"].value, rows["realistic_down_ratio"].value) == pytest.approx((250, 200))
    assert rows["realistic_parameters"].value >= 2_000_000
    assert rows["realistic_tokens"].value >= 4_000_000
    assert "realistic_diloco_loss" not in rows
    assert rows["realistic_token_factor"].note == ""
    assert "realistic_equal_bytes_deficit" not in rows
    peers = found | {"diloco": Result(3.5, sent / 200, sent / 200, 0, []), "sparseloco": Result(3.0, 1.0, 1.0, 0, [])}
    deficit = {one.name: one for one in part.rows_of(CORE, [peers], "realistic")}["realistic_equal_bytes_deficit"]
    assert (deficit.value, deficit.note) == (pytest.approx(3.6 / 3.5 - 1), "each seed's against diloco")
    del found["dense_351"]
    rows = {one.name: one for one in part.rows_of(CORE, [found], "realistic")}
    bound = rows["realistic_token_factor"]
    assert (bound.value, bound.note) == (pytest.approx(1.25), "at least")
    longest = {name: found[name] for name in ("dense", "ours")}
    assert "realistic_token_factor" not in {one.name for one in part.rows_of(CORE, [longest], "realistic")}
    del found["dense"]  # a shorter one alone bounds the factor of a loss above its own
    rows = {one.name: one for one in part.rows_of(CORE, [found], "realistic")}
    bound = rows["realistic_token_factor"]
    assert (bound.value, bound.note) == (pytest.approx(1.25), "at least")
    assert rows["realistic_dense_432_loss"].value == 3.6
    assert "realistic_loss_gap" not in rows
    found["ours"] = Result(3.5, 1.0, 1.0, 0, [])
    assert "realistic_token_factor" not in {one.name for one in part.rows_of(CORE, [found], "realistic")}


def test_seed_mixes_no_corpora(tmp_path: Path) -> None:
    kept = Outcomes(tmp_path / "kept.jsonl")
    kept.add(Run("dense", DENSE, CORE, 1), "c", Result(3.4, 1.0, 1.0, 0, []))
    kept.add(Run("ours", METHODS["ours"], CORE, 1), "d", Result(3.6, 1.0, 1.0, 0, []))
    assert part.found_by_seed(CORE, [1, 2], kept)[0].keys() == {"dense"}


def test_gpu_size_is_large() -> None:
    assert GPU.model.num_parameters() >= 30_000_000
    assert GPU.tokens >= 300_000_000


@pytest.mark.parametrize("size", [CORE, PROXY, GPU])
def test_rounds_make_up_realistic_steps(size: Size) -> None:
    measured = part.runs_of(size, [1])
    assert size is GPU or METHODS.keys() < {run.name for run in measured}
    for run in [*measured, *part.trials_of(size)]:
        training = specification(run.method, run.size, run.seed, run.steps).training
        assert training.rounds * training.inner_steps == (run.steps or size.steps)
        assert run.method.how != "growing" or training.rounds % 5 == 0
        assert training.batch_size * size.model.sequence_length >= 2048 or size is PROXY


def test_corpus_holds_out_whole_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "library"
    library.mkdir()
    for number in range(40):
        (library / f"{number}.py").write_text(f"def function_{number}():\n    return {number}\n" * 30)
    (library / "copy.py").write_text((library / "3.py").read_text().replace("    ", "\t"))
    monkeypatch.setattr("benchmarks.realistic.corpus.sysconfig.get_path", lambda name: str(tmp_path / "library"))
    first, again = (read_corpus((), 10**6, 300, tmp_path / "cache") for _ in range(2))
    assert first.digest == again.digest
    counts = {name: int((tokens == first.separator).sum()) for name, tokens in first.tokens.items()}
    assert counts == {"train": 35, "tuning": 3, "validation": 2}  # the copy counts once


@pytest.mark.parametrize("name", ["rounds of 15, averaged momentum", "rounds of 15, overlapped by mixing"])
def test_trial_rules_train(tmp_path: Path, name: str) -> None:
    spec = specification(TRIALS[name], TINY, 1)
    result = part.TRAIN[TRIALS[name].how](
        spec, CORPUS, "tuning", KeptState(tmp_path / "state", 0), "cpu", lambda _: None
    )
    assert len(result.curve) == 2
    assert result.loss < 5.9  # of a fresh model 6.2


def test_growing_rounds_cover_all_units() -> None:
    plan = growing_plan(160, 5)
    assert [unit for units in plan for unit in units] == list(range(160))
    assert (len(plan), len(plan[0]), len(plan[-1])) == (32, 2, 8)


def test_units_in_one_round_send_whole_way(tmp_path: Path) -> None:
    """Two units of a growing round end where one unit of twice the steps does."""
    ends = {}
    for steps, units in ((10, range(1)), (5, range(2))):
        method = Method("rounds", TRIALS["rounds of 10"].settings | rounds_of(steps))
        spec = specification(method, TINY, 1)
        start, train_split = initial_parameters(spec), CORPUS.split(spec, "train")
        ends[steps] = train_units(spec, units, 0, start, train_split, fresh_slot_state(spec), "cpu")()
    assert ends[5].payload == ends[10].payload
    assert ends[5].state.steps == ends[10].state.steps == 10
