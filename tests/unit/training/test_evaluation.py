"""Losses on held-out text: their samples and their standard error."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kit.errors import raises_code
from kit.training import TINY, spec_of, unit_of
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from market.training.checkpoints.service import loss_of
from training_gym.data.dataset import one_shard, spread_samples
from training_gym.evaluate import loss as evaluation
from training_gym.evaluate.extent import MAX_FINAL_WINDOWS, MAX_WINDOWS, evaluation_limit
from training_gym.evaluate.loss import evaluate, mean_loss
from training_gym.evaluate.sums import LossSums, pooled
from training_gym.exchange.early_start import start_parameters
from training_gym.model.layout import Arrays, initial_parameters
from training_gym.spec.config import TrainingSpec
from training_gym.spec.costs import flops_per_unit
from training_gym.spec.errors import ResultMismatch
from training_gym.units.trace import Unit, check_result, state_digest, state_path
from training_gym.units.unit import evaluate_checkpoint, replay_segment, run_unit
from zoo_protocol.verification.training_faults import (
    LARGEST_LOSS,
    LOSS_NOT_FINITE,
    KnownLoss,
    has_risen,
    is_worse,
    loss_fault,
)

SPEC = spec_of(TINY)
WINDOWS = 600


@pytest.fixture(scope="module")
def parameters() -> Arrays:
    """Return a model of which windows have different losses."""
    return {name: 30 * values if values.ndim > 1 else values for name, values in initial_parameters(SPEC).items()}


def text_of(windows: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, windows * TINY.sequence_length + 1, np.uint8).tobytes()


def first_windows(spec: TrainingSpec, parameters: Arrays, count: int, seed: int = 0) -> LossSums:
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


@pytest.mark.parametrize(("settings", "most"), [({"batch_size": 6}, 6), ({"batch_size": 6, "micro_batch_size": 4}, 4)])
def test_evaluation_holds_no_more_than_micro_batch(
    monkeypatch: pytest.MonkeyPatch, parameters: Arrays, settings: dict[str, Any], most: int
) -> None:
    sizes, collate = [], evaluation.collate
    monkeypatch.setattr(evaluation, "collate", lambda samples: (sizes.append(len(samples)), collate(samples))[1])
    spec = spec_of(TINY, **settings)
    found = evaluate(spec, parameters, one_shard(spec, text_of(10)), MAX_WINDOWS)
    assert (sizes, found.samples) == ([most, *([4, 2] if most == 4 else [4])], 10)


def test_first_and_last_model_take_more_samples() -> None:
    rounds = SPEC.training.rounds
    assert [evaluation_limit(SPEC, round_) for round_ in (1, rounds - 1)] == [MAX_WINDOWS] * 2
    assert evaluation_limit(SPEC, 0) == evaluation_limit(SPEC, rounds) == MAX_FINAL_WINDOWS


def evaluating_unit(slot: int, samples: int = 5, windows: int = 12, **training: Any) -> Unit:
    settings: dict[str, Any] = {"inner_steps": 4, "segment_steps": 2, "batch_size": 2, "warmup_steps": 0} | training
    spec = replace(spec_of(TINY, **settings), validation_samples=samples, replicas=3)
    return unit_of(spec, slot=slot, validation=one_shard(spec, text_of(windows)))


def test_slots_combine_to_loss_of_their_union(tmp_path: Path) -> None:
    found = LossSums()
    for slot in range(3):
        unit = evaluating_unit(slot)
        record = LossSums.from_bytes(run_unit(unit, tmp_path).evaluation)
        assert record.samples == (5, 5, 2)[slot]  # the split has twelve
        found += record
    assert unit.validation is not None
    assert found == evaluate(unit.spec, dict(unit.checkpoint), unit.validation, MAX_WINDOWS)
    assert run_unit(evaluating_unit(2, windows=10), tmp_path).evaluation == b""  # none is left for it


def test_early_start_is_not_evaluated(tmp_path: Path) -> None:
    """Its own payload has changed the parameters that the unit starts from."""
    unit = evaluating_unit(1)
    payload = run_unit(unit, tmp_path).payload
    early = replace(unit, checkpoint=start_parameters(unit.spec, unit.checkpoint, payload), evaluated=unit.checkpoint)
    plain, result, moved = (run_unit(one, tmp_path) for one in (unit, early, replace(early, evaluated=None)))
    assert (result.evaluation, result.payload) == (plain.evaluation, moved.payload)
    assert moved.evaluation != plain.evaluation


@pytest.mark.parametrize("segment_steps", [2, 4])
def test_false_evaluation_is_refuted_by_replay(tmp_path: Path, segment_steps: int) -> None:
    unit = evaluating_unit(1, segment_steps=segment_steps)
    result = run_unit(unit, tmp_path)
    check_result(unit, result)
    last = unit.spec.segments - 1
    state = state_path(tmp_path, last) if last else None
    assert replay_segment(unit, last, result.leaves[last], state) == result.leaves[-1]

    better = replace(LossSums.from_bytes(result.evaluation), losses=1).to_bytes()
    with raises_code(ResultMismatch, "wrong_end_leaf"):
        check_result(unit, replace(result, evaluation=better))
    for claim in (better, b""):
        digest = state_digest(result.end_parameters_digest, result.slot_state_digest, result.payload, claim)
        false = replace(result, evaluation=claim, state_digests=[*result.state_digests[:-1], digest])
        check_result(unit, false)  # it agrees with its own leaf
        assert replay_segment(unit, last, false.leaves[last], state) != false.leaves[-1]


@pytest.mark.parametrize(
    "changes", [{"losses": 2**70}, {"samples": 0}, {"targets": -1}, {"targets": 10**80}, {"products": 2**80}]
)
def test_impossible_record_is_refused(changes: dict[str, int]) -> None:
    record = LossSums.of([1.5, 2.0, 3.25], [8, 8, 4])
    assert LossSums.from_bytes(record.to_bytes()) == record
    with raises_code(ResultMismatch, "evaluation_malformed"):
        LossSums.from_bytes(replace(record, **changes).to_bytes())
    for data in (b"", b"1 1 1", b"01 1 1 1 1 1", b"9" * 600, record.to_bytes() + b" ", record.to_bytes() + b"\n"):
        with raises_code(ResultMismatch, "evaluation_malformed"):
            LossSums.from_bytes(data)


def test_weight_counts_the_evaluation() -> None:
    without, once = (flops_per_unit(evaluating_unit(0, samples).spec) for samples in (0, 1))
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # others are not counted
        evaluate_checkpoint(evaluating_unit(0, 1))
    assert once - without == counter.get_total_flops()


@pytest.mark.parametrize("false", [[0.0] * 8, [60.0] * 8, [1e9] * 8])
def test_false_record_of_a_minority_is_left_out(false: list[float]) -> None:
    honest = [LossSums.of(np.random.default_rng(slot).normal(30, 3, 8).tolist(), [10] * 8) for slot in range(3)]
    liar = LossSums.of(false, [10] * 8)
    assert pooled([*honest, liar]) == honest[0] + honest[1] + honest[2]
    assert pooled([honest[0], liar]) is None
    vague = LossSums.of([0.0, 1e4] * 4, [10] * 8)
    assert pooled([honest[0], vague]) is None  # its own error excuses no record
    assert pooled(honest[:2]) == honest[0] + honest[1]
    assert pooled([liar]) == liar


def test_record_with_false_error_is_left_out() -> None:
    """A large error of all records together would hide a spike."""
    honest = [LossSums.of(np.random.default_rng(slot).normal(30, 3, 6).tolist(), [10] * 6) for slot in range(7)]
    vague = replace(honest[0], loss_squares=10**40)
    LossSums.from_bytes(vague.to_bytes())
    assert pooled([*honest[1:], vague]) == sum(honest[1:], LossSums())
    few = [LossSums.of([30, 30 + 0.01 * slot**4], [10] * 2) for slot in range(4)]
    assert pooled(few) == sum(few, LossSums())  # errors of two samples differ widely


def test_records_of_one_sample_do_not_count() -> None:
    one = [LossSums.of([loss], [10]) for loss in (30.0, 31.0, 1e6)]
    assert pooled(one) is None  # the last one could feign a spike
    assert pooled(one[:1]) == one[0]  # a split of one sample


@pytest.mark.parametrize("count", [1, 64, 1 << 17])
def test_infinite_loss_has_largest_mean(count: int) -> None:
    found = LossSums.of([math.nan] + [5.0 * count] * 16383, [count] * 16384)
    assert LossSums.from_bytes(found.to_bytes()) == found
    stated = loss_of(found)
    assert stated.validation_loss == f"{LARGEST_LOSS:.6f}"
    assert loss_fault([KnownLoss(5.5), stated.known()]) == LOSS_NOT_FINITE


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([3.04, 3.05, 3.04, 3.06], True),
        ([3.02, 3.02, 3.02, 3.02], False),
        ([3.1, 3.1, 3.1, 0.0], True),
        ([3.1, 3.1, 0.0, 0.0], False),
        ([2.0, 2.0, 2.0, 99.0], False),
        ([999_999.0] * 4, True),
    ],
    ids=["all_rose", "within_limit", "one_lies", "half_lie", "one_feigns", "not_finite"],
)
def test_rise_is_of_most_evaluators(after: list[float], expected: bool) -> None:
    assert has_risen(dict.fromkeys(range(4), KnownLoss(3.0)), dict(enumerate(map(KnownLoss, after)))) == expected


@pytest.mark.parametrize(("error", "expected"), [(0.0, True), (0.08, True), (0.1, False), (9.0, False)])
def test_rise_exceeds_part_of_errors(error: float, expected: bool) -> None:
    before, after = ({slot: KnownLoss(loss, error) for slot in range(4)} for loss in (3.0, 3.06))
    assert has_risen(before, after) == expected


@pytest.mark.parametrize(
    ("final", "best", "expected"),
    [(2.0199, 2.0, False), (2.0201, 2.0, True), (1.9, 2.0, False), (math.inf, 2.0, True), (2.0, math.inf, False)],
)
def test_final_model_is_worse_beyond_hundredth(final: float, best: float, expected: bool) -> None:
    assert is_worse(KnownLoss(final, 0.5), KnownLoss(best, 0.5)) == expected


@pytest.mark.parametrize(("error", "expected"), [(0.0, True), (0.009, True), (0.01, False)])
def test_clearly_worse_model_exceeds_errors(error: float, expected: bool) -> None:
    assert is_worse(KnownLoss(2.06, error), KnownLoss(2.0, error), 3) == expected


def test_rise_needs_common_evaluators() -> None:
    assert not has_risen({0: KnownLoss(1.0)}, {1: KnownLoss(9.0)})
    assert not has_risen({}, {1: KnownLoss(9.0)})
