"""The smallest real falsifications: undetected by checks, refuted by the replay."""

from pathlib import Path

import numpy as np
import pytest
from kit.training import SMALL, spec_of, unit_of

from training_gym.units.trace import Unit, check_result, state_path
from training_gym.units.unit import replay_segment, run_unit
from training_gym.verify.adversaries import Attack, dishonest_training

SPEC = spec_of(SMALL, rounds=2, inner_steps=6, segment_steps=2, batch_size=4, learning_rate=1e-2, seed=3)


@pytest.fixture
def unit() -> Unit:
    return unit_of(SPEC)


@pytest.mark.parametrize("cheat", Attack)
@pytest.mark.parametrize("false", [0, 1, 2])
def test_smallest_alteration_fails_only_its_own_segment(unit: Unit, tmp_path: Path, cheat: Attack, false: int) -> None:
    earlier = np.full(SPEC.num_parameters(), 1e-3, np.float32)
    result = run_unit(unit, tmp_path, train=dishonest_training(cheat, {false}, earlier))
    check_result(unit, result)  # the checks without training do not find it
    for segment in range(SPEC.segments):
        state = state_path(tmp_path, segment).read_bytes()
        replayed = replay_segment(unit, segment, result.leaves[segment], state)
        assert (replayed != result.leaves[segment + 1]) == (segment == false)


def test_stale_payload_needs_earlier_one() -> None:
    with pytest.raises(ValueError, match="earlier"):
        dishonest_training(Attack.STALE, {0})


def test_adversary_without_false_segment_is_honest(unit: Unit, tmp_path: Path) -> None:
    assert run_unit(unit, tmp_path, train=dishonest_training(Attack.BF16, ())) == run_unit(unit, tmp_path)
