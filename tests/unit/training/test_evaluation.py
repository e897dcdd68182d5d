"""Losses on held-out text: their samples and their standard error."""

import math

import numpy as np
import pytest
from kit.training import TINY, spec_of

from training_gym.data.dataset import one_shard, spread_samples
from training_gym.evaluate import loss as evaluation
from training_gym.evaluate.loss import MAX_WINDOWS, Evaluation, evaluate, evaluation_limit, mean_loss
from training_gym.model.layout import Arrays, initial_parameters
from training_gym.spec.config import TrainingSpec

SPEC = spec_of(TINY)
WINDOWS = 600


@pytest.fixture(scope="module")
def parameters() -> Arrays:
    """Return a model of which windows have different losses."""
    return {name: 30 * values if values.ndim > 1 else values for name, values in initial_parameters(SPEC).items()}


def text_of(windows: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, windows * TINY.sequence_length + 1, np.uint8).tobytes()


def first_windows(spec: TrainingSpec, parameters: Arrays, count: int, seed: int = 0) -> Evaluation:
    return evaluate(spec, parameters, one_shard(spec, text_of(WINDOWS, seed)), count)


@pytest.mark.parametrize("windows", [1, 2, 3, 10, 97, 600])
def test_spread_samples_are_whole_split_once(windows: int) -> None:
    split = one_shard(SPEC, text_of(windows))
    every = {sample[0].inputs.tobytes() for sample in spread_samples(split, range(windows))}
    assert len(every) == split.order.size == windows
    begun = {sample[0].inputs.tobytes() for sample in spread_samples(split, range(windows // 2))}
    assert begun < every


def test_error_is_standard_error_of_mean(parameters: Arrays) -> None:
    split = one_shard(SPEC, text_of(40))
    losses = [mean_loss(SPEC, parameters, [sample]) for sample in spread_samples(split, range(30))]
    found = evaluate(SPEC, parameters, split, 30)
    assert found.loss == pytest.approx(float(np.mean(losses)), rel=1e-5)
    assert found.error == pytest.approx(float(np.std(losses, ddof=1)) / math.sqrt(30), rel=1e-4)


def test_error_covers_loss_of_whole_split(parameters: Arrays) -> None:
    distances = []
    for seed in range(12):
        whole, part = (first_windows(SPEC, parameters, count, seed) for count in (WINDOWS, 100))
        assert whole.error < part.error
        distances.append((whole.loss - part.loss) / part.error)
    assert 0.5 < math.sqrt(np.mean(np.square(distances))) < 1.6  # of 100 in 600 the expected one is 0.91


def test_evaluation_ends_when_error_is_small_enough(parameters: Arrays, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "MAX_WINDOWS", 20)
    error = first_windows(SPEC, parameters, 20).error
    share = 0.7 * error / first_windows(SPEC, parameters, WINDOWS).loss  # twice the windows give some 0.71
    monkeypatch.setattr(evaluation, "WANTED_ERROR", share)
    found = first_windows(SPEC, parameters, WINDOWS)
    assert found.samples in (40, 80)
    assert found.error <= share * found.loss
    assert first_windows(SPEC, parameters, 30).samples == 30


def test_small_split_is_taken_whole(parameters: Arrays) -> None:
    split = one_shard(SPEC, text_of(7))
    assert evaluate(SPEC, parameters, split, MAX_WINDOWS).samples == 7
    assert evaluate(SPEC, parameters, one_shard(SPEC, text_of(1)), MAX_WINDOWS).error == math.inf


def test_first_and_last_model_take_more_samples() -> None:
    rounds = SPEC.training.rounds
    assert [evaluation_limit(SPEC, round_) for round_ in (1, rounds - 1)] == [MAX_WINDOWS] * 2
    assert evaluation_limit(SPEC, 0) == evaluation_limit(SPEC, rounds) == evaluation.MAX_FINAL_WINDOWS
