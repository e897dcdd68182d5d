"""Epochs as rounds: the fewest that read them, after all settings that they depend on."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.errors import raises_code

from training_gym.data.dataset import DatasetManifest, Shard
from training_gym.data.epochs import settings_with_rounds
from training_gym.spec.config import MAX_ROUNDS, TrainingSpec
from training_gym.spec.errors import GymError, ManifestError, SpecError, StateError

CID, LENGTH = "b" * 59, 8
MODEL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "sequence_length": LENGTH}
LARGE = {"hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 8, "sequence_length": LENGTH}


def dataset(*tokens: int, samples: str = "text") -> DatasetManifest:
    train = tuple(Shard(CID, count, "0x" + "00" * 32) for count in tokens)
    return DatasetManifest(train, train, samples=samples)


def job(training: dict[str, Any], model: dict[str, Any] = MODEL) -> dict[str, Any]:
    return {"model_config": model, "data_config": {"dataset": CID}, "training_config": training}


@given(
    tokens=st.lists(st.integers(1, 3000), min_size=1, max_size=9).filter(lambda found: max(found) > LENGTH),
    epochs=st.one_of(st.integers(1, 40), st.integers(1, 4000).map(lambda hundredths: hundredths / 100)),
    steps=st.integers(1, 50),
    batch=st.integers(1, 64),
    nodes=st.integers(1, 64),
)
def test_rounds_are_fewest_for_epochs(tokens: list[int], epochs: float, steps: int, batch: int, nodes: int) -> None:
    training = {"epochs": epochs, "inner_steps": steps, "segment_steps": steps, "batch_size": batch}
    found = settings_with_rounds(job(training), nodes, lambda _: dataset(*tokens), max_rounds=10**9)
    asked = Fraction(str(epochs)) * sum((count - 1) // LENGTH for count in tokens)
    read = steps * batch * nodes
    assert found["rounds"] * read >= asked > (found["rounds"] - 1) * read


def test_fraction_counts_as_written() -> None:
    training = {"epochs": 0.07, "inner_steps": 7, "segment_steps": 7, "batch_size": 1}
    assert 0.07 * 100 > 7
    assert settings_with_rounds(job(training), 1, lambda _: dataset(100 * LENGTH + 1))["rounds"] == 1


@pytest.mark.parametrize(
    ("training", "model", "rounds"),
    [
        ({}, MODEL, 1112),  # 18 steps of 16 samples on 2 nodes
        ({"method": "diloco"}, MODEL, 40),  # 500 steps
        ({}, LARGE, 667),  # 30 steps
        ({"inner_steps": 10, "batch_size": 2, "segment_steps": 5}, MODEL, 16_000),
    ],
)
def test_defaults_are_complete_before_rounds(training: dict[str, Any], model: dict[str, Any], rounds: int) -> None:
    manifest = dataset(64_000 * LENGTH + 1)
    found = settings_with_rounds(job({"epochs": 10} | training, model), 2, lambda _: manifest, max_rounds=10**6)
    assert found == training | {"rounds": rounds}


def test_warmup_follows_from_rounds() -> None:
    training = {"epochs": 1, "inner_steps": 4, "segment_steps": 2, "batch_size": 16}
    settings = settings_with_rounds(job(training), 1, lambda _: dataset(100))
    spec = TrainingSpec.from_dict(job(settings))
    assert (spec.training.rounds, spec.training.warmup_steps) == (1, 4)
    longer = settings_with_rounds(job(training | {"epochs": 9, "warmup_steps": 7}), 1, lambda _: dataset(100))
    assert TrainingSpec.from_dict(job(longer)).training.warmup_steps == 7


def test_epochs_of_chats_count_their_samples() -> None:
    chats = (Shard(CID, 900, "0x" + "00" * 32, samples=30), Shard(CID, 90, "0x" + "00" * 32, samples=3))
    training = {"epochs": 2, "objective": "sft", "inner_steps": 2, "batch_size": 3}
    found = settings_with_rounds(job(training), 1, lambda _: DatasetManifest(chats, chats, samples="chat"))
    assert found["rounds"] == 11


def test_settings_without_epochs_stay_and_read_nothing() -> None:
    for training in ({}, {"rounds": 3}, {"unknown": 1}):
        assert settings_with_rounds(job(training), 1, lambda _: pytest.fail("reads a dataset")) == training


@pytest.mark.parametrize(
    ("training", "code", "field"),
    [
        ({"epochs": 1, "rounds": 8}, "contradicts_rounds", "epochs"),
        ({"epochs": 0}, "out_of_range", "epochs"),
        ({"epochs": -1}, "out_of_range", "epochs"),
        ({"epochs": 10**400}, "out_of_range", "epochs"),
        ({"epochs": float("nan")}, "out_of_range", "epochs"),
        ({"epochs": "2"}, "wrong_type", "epochs"),
        ({"epochs": True}, "wrong_type", "epochs"),
        ({"epochs": None}, "wrong_type", "epochs"),
        ({"epochs": 1, "inner_stepz": 8}, "unknown_key", "inner_stepz"),
        ({"epochs": 1, "inner_steps": 0}, "out_of_range", "inner_steps"),
    ],
)
def test_unusable_length_is_refused_by_field(training: dict[str, Any], code: str, field: str) -> None:
    with raises_code(SpecError, code) as refused:
        settings_with_rounds(job(training), 1, lambda _: pytest.fail("reads a dataset"))
    assert refused.value.field == f"training_config.{field}"


def test_too_many_epochs_name_samples_and_rounds() -> None:
    training = {"epochs": 2, "inner_steps": 4, "batch_size": 1}
    most = (4 * MAX_ROUNDS // 2) * LENGTH + 1
    assert settings_with_rounds(job(training), 1, lambda _: dataset(most))["rounds"] == MAX_ROUNDS
    with raises_code(SpecError, "out_of_range") as refused:
        settings_with_rounds(job(training), 1, lambda _: dataset(most, LENGTH + 1))
    assert refused.value.field == "training_config.epochs"
    assert "is 2; 20001 samples an epoch take 10001 rounds of 4 samples" in refused.value.message


@pytest.mark.parametrize(
    ("manifest", "error", "code"),
    [
        (dataset(100, samples="chat"), ManifestError, "wrong_kind"),
        (dataset(LENGTH), StateError, "too_short"),
    ],
)
def test_unfit_dataset_is_refused(manifest: DatasetManifest, error: type[GymError], code: str) -> None:
    with raises_code(error, code):
        settings_with_rounds(job({"epochs": 1}), 1, lambda _: manifest)
