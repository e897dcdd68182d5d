"""Tolerances across environment classes, and the comparison of segments' ends."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.detection.replays import unit_of
from market.domain.verification.tolerance import CAP, MARGIN, START_PER_STEP, TENSOR_CAP, TENSOR_SHARE, tolerance
from training_gym.compress.payload_format import decode, encode, encode_step, uplink
from training_gym.model.layout import NamedArrays
from training_gym.spec.errors import ResultMismatch
from training_gym.units.trace import Unit, UnitResult, load_boundary_state, state_path
from training_gym.units.unit import replay_end_state, run_unit
from training_gym.verify.adversaries import Attack, dishonest_training, parameter_change
from training_gym.verify.tolerance import claimed_end, difference
from zoo_protocol.hashing import sha256, to_hex

ENVIRONMENT = to_hex(sha256(b"environment"))
shares = st.floats(min_value=0, max_value=1, allow_nan=False)


@given(st.integers(1, 10_000), st.lists(shares, max_size=9))
def test_tolerance_stays_between_start_and_cap(steps: int, drifts: list[float]) -> None:
    found = tolerance(steps, drifts)
    assert min(CAP, START_PER_STEP * steps) <= found.whole <= CAP
    assert found.widest == min(TENSOR_CAP, TENSOR_SHARE * found.whole)


@given(st.lists(shares, min_size=3, max_size=9), shares)
def test_single_drift_moves_tolerance_to_next_honest_one(drifts: list[float], outlier: float) -> None:
    assert tolerance(2, [*drifts, outlier]).whole <= tolerance(2, [max(drifts)]).whole


def test_tolerance_follows_measurements() -> None:
    assert tolerance(3, []).whole == pytest.approx(1e-5)
    assert tolerance(3, [3e-6]).whole == pytest.approx(MARGIN * 3e-6)
    assert tolerance(3, [1e-3]).whole == CAP
    with pytest.raises(ValueError):
        tolerance(0, [])


def test_differences_within_tolerance_pass() -> None:
    limit = tolerance(3, [])
    assert limit.passes(0.99e-5, 1.99e-3)
    assert not limit.passes(1.01e-5, 0)
    assert not limit.passes(0, 2.01e-3)
    assert not limit.passes(math.nan, 0)
    assert not limit.passes(0, math.inf)


@pytest.fixture(scope="module", params=["small", "adamw"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Unit, Path, UnitResult]:
    directory, unit = tmp_path_factory.mktemp("unit"), unit_of(request.param, 0, ENVIRONMENT)
    feedback = np.random.default_rng(0).normal(0, 1e-3, unit.spec.num_parameters()).astype(np.float32)
    unit = replace(unit, slot_state=replace(unit.slot_state, error_feedback=feedback))
    return unit, directory, run_unit(unit, directory)


def ends(unit: Unit, directory: Path) -> list[NamedArrays]:
    return [load_boundary_state(unit.spec, state_path(directory, n).read_bytes()) for n in range(unit.spec.segments)]


def test_last_end_follows_from_delivered_unit(trained: tuple[Unit, Path, UnitResult]) -> None:
    unit, directory, result = trained
    last = unit.spec.segments - 1
    ended, _ = replay_end_state(unit, last, result.leaves[last], state_path(directory, last).read_bytes())
    apart = difference(claimed_end(unit, result.slot_state, result.payload), ended)
    assert tolerance(unit.spec.training.segment_steps, []).passes(apart.whole, apart.widest)
    assert difference(claimed_end(unit, unit.slot_state, result.payload), ended).whole > CAP


def test_smallest_alterations_exceed_cap(trained: tuple[Unit, Path, UnitResult]) -> None:
    unit, directory, _ = trained
    states = ends(unit, directory)
    steps = range(2, 4)
    honest, _ = dishonest_training(Attack.SKIP_STEP, set())(unit, states[1], steps, lambda step, loss: None)
    assert difference(states[2], honest).whole == 0
    for cheat in Attack:
        train = dishonest_training(cheat, {1}, parameter_change(unit, states[3]))
        false, _ = train(unit, states[1], steps, lambda step, loss: None)
        assert difference(false, honest).whole > CAP, cheat


def test_difference_in_one_small_tensor_is_measured(trained: tuple[Unit, Path, UnitResult]) -> None:
    unit, directory, _ = trained
    state = ends(unit, directory)[2]
    name = min((name for name in state if name.startswith("parameters.")), key=lambda name: state[name].size)
    changed = {**state, name: state[name] * np.float32(1.01)}
    assert difference(changed, state).widest == pytest.approx(0.01, rel=1e-3)
    zeros = {name: np.zeros_like(array) for name, array in state.items()}
    assert difference(state, zeros).whole == math.inf
    assert difference(zeros, zeros).whole == 0


def test_payload_foreign_to_result_is_refused(trained: tuple[Unit, Path, UnitResult]) -> None:
    """Payload and error feedback still have the correct sum, and so the correct parameters."""
    unit, _, result = trained
    left = result.slot_state
    sent = decode(unit.spec, result.payload).dense()
    for share in (-5.0, 0.0, 0.97):
        poison = encode(unit.spec, np.float32(share) * sent)
        rest = left.error_feedback + sent - decode(unit.spec, poison).dense()
        with pytest.raises(ResultMismatch) as refusal:
            claimed_end(unit, replace(left, error_feedback=rest), poison)
        assert refusal.value.code == "payload_mismatch"


@pytest.mark.parametrize(("top_k", "bits"), [(4096, 2), (960, 2), (64, 2), (64, 4), (4096, 8)])
def test_compressed_payload_is_unambiguous(top_k: int, bits: int) -> None:
    unit = unit_of("small", 0, ENVIRONMENT)
    unit = replace(unit, spec=replace(unit.spec, training=replace(unit.spec.training, top_k=top_k, value_bits=bits)))
    for seed in range(40):
        dice = np.random.default_rng(seed)
        wanted = dice.standard_normal(unit.spec.num_parameters()) * np.exp(dice.standard_normal() * 5)
        wanted = (wanted * np.exp(dice.standard_normal(len(wanted)) * (seed % 4))).astype(np.float32)
        payload, sent = encode_step(uplink(unit.spec), wanted)
        claimed_end(unit, replace(unit.slot_state, error_feedback=wanted - sent.dense()), payload)
