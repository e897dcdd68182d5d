"""Statistics of payloads: honest differences raise no outlier flag, gross attacks do."""

from dataclasses import replace

import numpy as np
import pytest
from kit.training import spec_of

from benchmarks.detection import consistency
from training_gym.compress.payload_format import Payload, decode, encode
from training_gym.model.tensors import Vector, unflatten
from training_gym.spec.config import TrainingSpec
from training_gym.verify.consistency import MIN_PAYLOADS, Statistics, measure, outlier_flags

USUAL = Statistics(norm=1.0, cosine=0.3, overlap=2.0, copied=0.4, spectrum=0.5)
SPEC = spec_of(consistency.MODEL, top_k=64)


def drawn(count: int) -> list[Vector]:
    dice = np.random.default_rng(0)
    return [dice.normal(0, 1e-3, SPEC.num_parameters()).astype(np.float32) for _ in range(count)]


def sent(spec: TrainingSpec, vectors: list[Vector]) -> dict[int, Payload]:
    return {slot: decode(spec, encode(spec, vector)) for slot, vector in enumerate(vectors)}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"norm": 5.0}, "norm"),
        ({"norm": 0.1}, "norm"),
        ({"cosine": -0.5}, "cosine"),
        ({"overlap": 0.5}, "index_overlap"),
        ({"copied": 1.0}, "index_overlap"),
        ({"spectrum": 0.99}, "spectrum"),
    ],
)
def test_each_statistic_has_own_outlier_flag(changes: dict[str, float], code: str) -> None:
    assert outlier_flags(USUAL) == []
    assert outlier_flags(replace(USUAL, **changes)) == [code]


@pytest.mark.long
def test_gross_attacks_are_flagged_and_honest_differences_not() -> None:
    found = consistency.simulate(5, 1)
    assert sum(found.nodes.values()) == 2 * consistency.SLOTS
    assert (sum(found.flagged.values()), sum(found.excluded.values())) == (0, 0)
    assert all(found.noticed[attack] == found.attacks[attack] for attack in ("flip", "mimic"))


def test_one_directional_payload_is_seen_in_spectrum() -> None:
    vectors = drawn(5)
    vectors[3] = np.where(np.arange(len(vectors[3])) < 64, np.float32(1e-2), np.float32(0))  # one row of embeddings
    payloads = sent(SPEC, vectors)
    found = measure(SPEC, payloads)
    assert "spectrum" in outlier_flags(found[3])
    assert all("spectrum" not in outlier_flags(found[slot]) for slot in (0, 1, 2, 4))
    assert measure(SPEC, dict(list(payloads.items())[: MIN_PAYLOADS - 1])) == {}


def test_any_single_direction_is_detected() -> None:
    vectors = drawn(5)
    vectors[3] = np.zeros_like(vectors[0])
    head = unflatten(SPEC, vectors[3])["lm_head.weight"]
    head[:] = np.float32(1e-2) * np.where(np.arange(head.shape[1]) % 2, np.float32(-1), np.float32(1))
    dense = replace(SPEC, training=replace(SPEC.training, top_k=4096))
    found = measure(dense, sent(dense, vectors))
    assert {slot for slot, one in found.items() if "spectrum" in outlier_flags(one)} == {3}
