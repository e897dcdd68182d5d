"""The smallest real falsifications: undetected by checks, refuted by the replay."""

from pathlib import Path

import numpy as np
import pytest

from training_gym.model.layout import initial_parameters
from training_gym.spec.config import ModelConfig, TrainingConfig, TrainingSpec
from training_gym.units.replica_state import fresh_slot_state
from training_gym.units.trace import Unit, check_result, state_path
from training_gym.units.unit import replay_segment, run_unit
from training_gym.verify.adversaries import Attack, dishonest_training

TEXT = b"".join(b"the %d sheep of the zoo count %d times. " % (n % 10, n % 7) for n in range(400))
SPEC = TrainingSpec(
    ModelConfig(hidden_size=16, num_layers=1, num_heads=2, sequence_length=16),
    "unused",
    TrainingConfig(rounds=2, inner_steps=6, segment_steps=2, batch_size=4, learning_rate=1e-2, seed=3),
)


@pytest.fixture
def unit() -> Unit:
    return Unit(
        spec=SPEC,
        job_id="0x" + "11" * 32,
        round=1,
        slot=2,
        checkpoint=initial_parameters(SPEC.model, SPEC.training.seed),
        train=np.frombuffer(TEXT, np.uint8),
        slot_state=fresh_slot_state(SPEC),
        environment="0x" + "22" * 32,
    )


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


def test_stale_payload_needs_earlier_one(unit: Unit) -> None:
    with pytest.raises(ValueError, match="earlier"):
        dishonest_training(Attack.STALE, {0})


def test_adversary_without_false_segment_is_honest(unit: Unit, tmp_path: Path) -> None:
    assert run_unit(unit, tmp_path, train=dishonest_training(Attack.BF16, ())) == run_unit(unit, tmp_path)
