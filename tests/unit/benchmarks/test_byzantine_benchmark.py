"""Kept runs, and the attack that knows the rules."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.byzantine import ATTACKS, MODEL
from benchmarks.robustness import long_runs
from benchmarks.robustness.adaptive import adaptive
from benchmarks.robustness.kept import KeptRuns
from training_gym.aggregate.aggregation import aggregate
from training_gym.aggregate.outer_step import initial_outer_state
from training_gym.compress.payload_format import decode, encode
from training_gym.model.layout import initial_parameters

SPEC = long_runs.spec_of(MODEL, 1, 3, 4, inner_steps=2, segment_steps=2, batch_size=2)
TEXTS = (np.frombuffer(bytes(range(256)) * 16, np.uint8), np.frombuffer(bytes(range(256)) * 8, np.uint8))


def test_interrupted_run_continues_to_same_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_runs, "_ROUNDS_PER_STATE", 1)
    whole = long_runs.train(SPEC, TEXTS, "ipm", 1, ATTACKS, KeptRuns(tmp_path / "a", tmp_path / "a-states"))
    kept, rounds = KeptRuns(tmp_path / "b", tmp_path / "b-states"), []
    one = long_runs._round

    def interrupted(*arguments: object) -> None:
        rounds.append(arguments)
        if len(rounds) == 3:
            raise KeyboardInterrupt
        one(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(long_runs, "_round", interrupted)
    with pytest.raises(KeyboardInterrupt):
        long_runs.train(SPEC, TEXTS, "ipm", 1, ATTACKS, kept)
    assert long_runs.train(SPEC, TEXTS, "ipm", 1, ATTACKS, kept) == whole
    assert len(rounds) == 4
    again = KeptRuns(tmp_path / "b", tmp_path / "b-states", can_measure=False)
    assert long_runs.train(SPEC, TEXTS, "ipm", 1, ATTACKS, again) == whole
    assert long_runs.train(SPEC, TEXTS, "alie", 1, ATTACKS, again) is None
    assert list((tmp_path / "b-states").iterdir()) == []


def test_long_rows_have_names_of_aims(tmp_path: Path) -> None:
    kept = KeptRuns(tmp_path / "kept", tmp_path)
    for name, loss in {"none": 2.0, "adaptive_25": 2.1, "flip_25": 2.2, "adaptive_37": 9.0}.items():
        kept.add(long_runs.identity(SPEC, name.partition("_")[0], long_runs.ATTACKS[name], long_runs.TEXT), loss)
    kept = KeptRuns(tmp_path / "kept", tmp_path, can_measure=False)  # whatever text this machine has
    rows = {one.name: one.value for one in long_runs.rows_of([SPEC], TEXTS, ATTACKS, kept)}
    assert rows == pytest.approx(
        {
            "rounds": 3,
            "adaptive_25_ours": 0.05,
            "long_flip_25_ours": 0.1,
            "adaptive_37_ours": 3.5,
            "worst_25_ours": 0.1,
            "diverged_37_ours": 1,
        }
    )


def test_run_on_other_text_is_measured_again(tmp_path: Path) -> None:
    kept = KeptRuns(tmp_path / "kept", tmp_path)
    kept.add(long_runs.identity(SPEC, "none", 0, long_runs.TEXT), 2.0)
    assert long_runs.train(SPEC, TEXTS, "none", 0, ATTACKS, kept) != 2.0


def test_adaptive_payloads_are_accepted_and_reduce_progress() -> None:
    noise = np.random.default_rng(0)
    common = noise.standard_normal(SPEC.num_parameters())
    vectors = [common + 2 * noise.standard_normal(len(common)) for _ in range(6)]
    honest = {slot: encode(SPEC, (0.01 * vector).astype(np.float32)) for slot, vector in enumerate(vectors)}
    state = initial_outer_state(SPEC)
    sent = adaptive(SPEC, honest, range(6, 8), state, np.random.default_rng(1))
    result = aggregate(SPEC, initial_parameters(SPEC), honest | sent, outer_state=state)
    assert result.verdicts[6].included
    assert result.verdicts[7].included
    mean = np.mean([decode(SPEC, payload).dense() for payload in honest.values()], axis=0)
    assert result.outer_state.aggregate @ mean < 0.95 * (mean @ mean)
    assert all(result.verdicts[slot].included for slot in honest)
