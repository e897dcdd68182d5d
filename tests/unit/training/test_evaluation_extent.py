"""Samples that units evaluate by default."""

from dataclasses import replace
from typing import Any

import pytest
from kit.errors import raises_code

from training_gym.data.dataset import DatasetManifest, Shard
from training_gym.evaluate.extent import (
    MAX_FINAL_WINDOWS,
    MAX_FLOPS,
    affordable_samples,
    check_record,
    evaluated_every,
    evaluation_limit,
    is_affordable,
    is_by_verifiers,
    is_enough,
    is_enough_of_first,
    settings_with_samples,
)
from training_gym.evaluate.sums import LossSums
from training_gym.spec.config import MAX_EVALUATED, TrainingSpec
from training_gym.spec.costs import flops_per_evaluation, flops_per_unit
from training_gym.spec.errors import ManifestError, ResultMismatch, SpecError

CID, LENGTH = "b" * 59, 8
MODEL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "sequence_length": LENGTH}
SLOW = {"method": "slow_links"}
MANY = {"inner_steps": 1000, "segment_steps": 100, "batch_size": 4096}


def job(training: dict[str, Any], **data: Any) -> dict[str, Any]:
    return {"model_config": MODEL, "data_config": {"dataset": CID} | data, "training_config": training}


def dataset(windows: int, samples: str = "text") -> DatasetManifest:
    shard = (Shard(CID, windows * LENGTH + 1, "0x" + "00" * 32),)
    return DatasetManifest(shard, shard, samples=samples)


def completed(training: dict[str, Any], nodes: int, windows: int = 10**6) -> TrainingSpec:
    found = settings_with_samples(job(training), nodes, lambda _: dataset(windows))
    return TrainingSpec.from_dict(job(training) | {"data_config": found}, nodes)


@pytest.mark.parametrize("training", [{"segment_steps": 1}, {"segment_steps": 2}, {"segment_steps": 20}, SLOW])
def test_default_evaluation_is_cheap(training: dict[str, Any]) -> None:
    training = training | {"optimizer": "adamw"}
    spec, without = (TrainingSpec.from_dict(job(training, validation_samples=count), 4) for count in (1, 0))
    samples = completed(training, 4).validation_samples
    whole, one = flops_per_unit(without), flops_per_unit(spec) - flops_per_unit(without)
    limit = min(whole / 50, whole / without.segments / 4)
    assert 0 < samples * one <= limit < (samples + 1) * one


def test_default_is_within_split() -> None:
    assert [completed({}, 4, windows).validation_samples for windows in (7, 8, 30, 35, 36)] == [0, 2, 7, 8, 9]
    assert completed(MANY, 1).validation_samples == MAX_EVALUATED


@pytest.mark.parametrize(
    ("training", "nodes"),
    [
        ({"inner_steps": 4, "segment_steps": 1, "batch_size": 2}, 4),  # less than a sample of each unit
        ({"inner_steps": 8, "segment_steps": 4, "batch_size": 8}, 1),  # too few for a loss
    ],
)
def test_costly_evaluation_is_left_to_market(training: dict[str, Any], nodes: int) -> None:
    found = settings_with_samples(job(training), nodes, lambda _: pytest.fail("reads a dataset"))
    assert found == {"dataset": CID, "validation_samples": 0}
    assert completed(training, nodes).to_dict()["data_config"] == {"dataset": CID, "replicas": nodes}


def test_market_evaluates_within_limit() -> None:
    large, rounds = {"hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 8, "sequence_length": 512}, 300
    for model in (MODEL, MODEL | large, MODEL | large | {"num_hidden_layers": 64, "sequence_length": 4096}):
        spec = TrainingSpec.from_dict(job({"rounds": rounds}) | {"model_config": model}, 2)
        every, one = evaluated_every(spec), evaluation_limit(spec, 1) * flops_per_evaluation(spec)
        assert evaluated_every(replace(spec, validation_samples=2)) == every  # records may not count
        assert (rounds // every) * one <= max(one, MAX_FLOPS)
        assert every == 1 or rounds / (every - 1) * one > MAX_FLOPS
    assert evaluated_every(TrainingSpec.from_dict(job({"rounds": rounds}))) == 1


@pytest.mark.parametrize(("samples", "taken"), [(0, 0), (1, 0), (3, 3), (7, 7), (8, 7), (MAX_EVALUATED, 7)])
def test_given_samples_are_at_most_those_of_split(samples: int, taken: int) -> None:
    found = settings_with_samples(job({}, validation_samples=samples), 4, lambda _: dataset(30))
    assert found == {"dataset": CID, "validation_samples": taken}


def test_no_evaluation_by_units_reads_no_dataset() -> None:
    given = job({}, validation_samples=0)
    assert settings_with_samples(given, 4, lambda _: pytest.fail("reads a dataset")) == given["data_config"]


def test_default_is_more_than_one_sample() -> None:
    small = {"inner_steps": 4, "segment_steps": 2, "batch_size": 6}
    spec = TrainingSpec.from_dict(job(small), 64)
    assert flops_per_unit(spec) // 50 // flops_per_evaluation(spec) == 1
    assert affordable_samples(spec) == 1
    assert completed(small, 64).validation_samples == 0


def test_unsuitable_dataset_is_refused() -> None:
    with raises_code(ManifestError, "wrong_kind"):
        settings_with_samples(job({}), 4, lambda _: dataset(100, "chat"))
    with raises_code(SpecError, "out_of_range"):
        settings_with_samples(job({"rounds": 0}), 4, lambda _: dataset(100))


def test_more_nodes_allow_smaller_units() -> None:
    small = {"inner_steps": 8, "segment_steps": 4, "batch_size": 8}
    alone, four = (TrainingSpec.from_dict(job(small), nodes) for nodes in (1, 8))
    assert (affordable_samples(alone), affordable_samples(four) > 1) == (0, True)


def test_enough_samples_of_first_and_final_model() -> None:
    settings = {"rounds": 3, "inner_steps": 10, "segment_steps": 10}
    spec = TrainingSpec.from_dict(job(settings, validation_samples=8), 4)
    precise, coarse = (2.0, 0.006), (2.0, 0.007)
    assert is_enough(spec, 3, 16, precise, 10**6)
    assert not is_enough(spec, 3, 32, coarse, 10**6)
    assert is_enough(spec, 3, 32, coarse, 32)  # the whole split
    assert is_enough(spec, 3, MAX_FINAL_WINDOWS, coarse, 10**6)
    units = LossSums.of([2.0, 2.0] * 16, [1] * 32)
    assert is_enough_of_first(spec, units)
    assert not is_enough_of_first(spec, LossSums.of([2.0] * 24, [1] * 24))  # a replica's record is missing
    assert not is_enough_of_first(spec, LossSums.of([1.0, 3.0] * 16, [1] * 32))
    pair = TrainingSpec.from_dict(job(settings, validation_samples=16), 2)
    assert not is_enough_of_first(pair, units)  # of two, none is the majority


def test_costly_first_model_is_left_to_units() -> None:
    model = MODEL | {"hidden_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 16, "sequence_length": 4096}
    document = job({"method": "default"}, validation_samples=8) | {"model_config": model}
    spec = TrainingSpec.from_dict(document, 4)
    wide = LossSums.of([1.0, 3.0] * 16, [1] * 32)
    assert 16 < (most := MAX_FLOPS // flops_per_evaluation(spec)) < 32
    assert [evaluation_limit(spec, round_) for round_ in (0, 1, spec.training.rounds)] == [256, most, 256]
    larger = TrainingSpec.from_dict(document | {"model_config": model | {"num_hidden_layers": 24}}, 4)
    assert evaluation_limit(larger, 1) == 16
    assert is_enough_of_first(spec, wide)
    assert not is_enough(spec, spec.training.rounds, 32, (wide.loss, wide.error), 10**6)


@pytest.mark.parametrize(("steps", "most"), [(1, 3), (40, 9), (1200, 256)])
def test_short_job_of_large_model_has_few_samples(steps: int, most: int) -> None:
    """The market would evaluate for hours what a payer trains in seconds."""
    model = MODEL | {"hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16, "sequence_length": 8192}
    training = {"optimizer": "adamw", "rounds": 1, "inner_steps": steps, "segment_steps": steps, "batch_size": 4}
    spec = TrainingSpec.from_dict(job(training) | {"model_config": model})
    one, whole = flops_per_evaluation(spec), flops_per_unit(spec)
    found = {evaluation_limit(spec, round_) for round_ in (0, 1)}
    assert max(found) * one <= max(MAX_FLOPS, whole // 50)
    assert max(found) == most


@pytest.mark.parametrize(("steps", "expected"), [(1, False), (200, True)])
def test_evaluation_needs_its_share_of_training(steps: int, expected: bool) -> None:
    model = MODEL | {"num_hidden_layers": 128, "hidden_size": 64, "sequence_length": 131_072}
    training = {"optimizer": "adamw", "rounds": 1, "inner_steps": steps, "segment_steps": steps, "batch_size": 1}
    assert is_affordable(TrainingSpec.from_dict(job(training) | {"model_config": model})) == expected


def test_verifiers_evaluate_final_model_of_large_jobs_only() -> None:
    training = {"optimizer": "adamw", "rounds": 10, "inner_steps": 20, "batch_size": 10}
    spec = TrainingSpec.from_dict(job(training, validation_samples=8), 2)
    most = flops_per_unit(spec) * 2 * 10 // 50 // flops_per_evaluation(spec)
    assert 200 < most < MAX_FINAL_WINDOWS
    assert [is_by_verifiers(spec, size) for size in (most, most + 1)] == [True, False]


@pytest.mark.parametrize("counts", [[LENGTH] * 4, [LENGTH, LENGTH + 1], [10**25, 0]])
def test_record_beyond_specification_is_refused(counts: list[int]) -> None:
    spec = TrainingSpec.from_dict(job({}, validation_samples=3), 4)
    check_record(spec, LossSums.of([2.0] * 3, [LENGTH] * 3).to_bytes(), 3)
    with raises_code(ResultMismatch, "evaluation_malformed"):
        check_record(spec, LossSums.of([2.0] * len(counts), counts).to_bytes(), 3)
