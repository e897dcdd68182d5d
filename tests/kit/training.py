"""Small specifications, and a unit of them on a text that a model can learn."""

from pathlib import Path
from typing import Any

from training_gym.data.dataset import one_shard
from training_gym.model.layout import initial_parameters
from training_gym.spec.architectures import ModelConfig, read_model
from training_gym.spec.config import TrainingConfig, TrainingSpec
from training_gym.units.replica_state import fresh_slot_state
from training_gym.units.trace import Unit

TEXT = b"".join(b"the %d sheep of the zoo count %d times. " % (n % 10, n % 7) for n in range(400))
TINY = read_model({"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "sequence_length": 8})
SMALL = read_model({"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "sequence_length": 16})


def spec_of(model: ModelConfig = TINY, **training: Any) -> TrainingSpec:
    return TrainingSpec(model, "unused", TrainingConfig(**training))


def one_file(path: Path, content: bytes) -> dict[str, Any]:
    """Describe a split of one file of bytes, as a task of the training child does."""
    path.write_bytes(content)
    return {"dtype": "uint8", "tokens": [len(content)], "files": {"0": str(path)}}


def unit_of(spec: TrainingSpec, **changes: Any) -> Unit:
    """Build the unit of replica 2 in round 1."""
    given: dict[str, Any] = {
        "job_id": "0x" + "11" * 32,
        "round": 1,
        "slot": 2,
        "checkpoint": initial_parameters(spec),
        "train": one_shard(spec, TEXT),
        "slot_state": fresh_slot_state(spec),
        "environment": "0x" + "22" * 32,
    }
    return Unit(spec=spec, **given | changes)
