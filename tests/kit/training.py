"""Small specifications, and a unit of them on a text that a model can learn."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from training_gym.data.dataset import one_shard
from training_gym.data.samples import Batch
from training_gym.data.shards import DTYPES, Layout
from training_gym.model.layout import initial_parameters
from training_gym.model.network import Rows, rows_on
from training_gym.spec.architectures import ModelConfig, read_model
from training_gym.spec.config import TrainingConfig, TrainingSpec
from training_gym.units.checkpoint import initial_checkpoint
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
    return {"layout": asdict(Layout()), "sizes": [(len(content), 0)], "files": {"0": str(path)}}


def unit_of(spec: TrainingSpec, **changes: Any) -> Unit:
    """Build the unit of replica 2 in round 1."""
    given: dict[str, Any] = {
        "job_id": "0x" + "11" * 32,
        "round": 1,
        "slot": 2,
        "checkpoint": initial_parameters(spec),
        "slot_state": fresh_slot_state(spec),
        "environment": "0x" + "22" * 32,
    }
    if "train" not in changes:
        given["train"] = one_shard(spec, TEXT)
    return Unit(spec=spec, **given | changes)


def rows_of(tokens: Any) -> Rows:
    """Return rows [R, T + 1] of which each next token is a target."""
    whole = np.asarray(tokens, np.int64)
    return rows_on("cpu", Batch(whole[:, :-1], whole[:, 1:], None, whole[:, 1:].size))


def shard_of_rows(rows: Sequence[tuple[Sequence[int], Sequence[int]]], dtype: str = "uint8") -> bytes:
    """Return the shard file of rows of tokens, each with its loss mask."""
    offsets = np.cumsum([0, *(len(tokens) for tokens, _ in rows)]).astype("<u4")
    tokens = np.concatenate([tokens for tokens, _ in rows]).astype(DTYPES[dtype])
    mask = np.packbits(np.concatenate([mask for _, mask in rows]).astype(np.uint8), bitorder="little")
    return offsets.tobytes() + tokens.tobytes() + mask.tobytes()


def train_task(spec: dict[str, Any], folder: Path, environment: str) -> dict[str, Any]:
    """Return a training child's task of a fresh model, with its files in ``folder``."""
    (folder / "checkpoint").write_bytes(initial_checkpoint(TrainingSpec.from_dict(spec)))
    (folder / "output").mkdir()
    return {
        "kind": "train",
        "spec": spec,
        "job_id": "0x" + "11" * 32,
        "round": 0,
        "slot": 1,
        "checkpoint": str(folder / "checkpoint"),
        "train_data": one_file(folder / "text", TEXT),
        "slot_state": None,
        "environment": environment,
        "output": str(folder / "output"),
    }
