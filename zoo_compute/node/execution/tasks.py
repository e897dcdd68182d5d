"""Training tasks as JSON objects between executor and child. No torch.

Every path names a verified file; ``output`` names an existing directory.

- ``train``: spec, job_id, round, slot, checkpoint, train_data, slot_state (path or null), restored_payload (path or
  null: restored into the replica state), eager_payload (path or null: applied ahead of the checkpoint), environment,
  output, validation_data (null if the unit evaluates nothing)
- ``replay``: the same without output, and segment, start_leaf (0x hex), state (path; null for segment 0).
  ``across`` (true) allows a unit of another environment class: the uncompressed end state is written to output.
  ``inner`` (step, nonce as 0x hex) requests the digest of the first segment's state after that step
- ``evaluate``: spec, environment, checkpoint, validation_data, base (paths by file name, or null); as the final model
- ``catch_up``: spec, checkpoint (an earlier model), updates (paths, the oldest first), output: the model's file
- ``probe``: no fields
- ``probe_job``: as ``train`` without output; two steps of the job's shapes (``training_gym.units.probe``)
- ``prove_ready``: work, seed; makes the pool of a hardware challenge and keeps it for the other two
- ``prove_work``: nonce
- ``prove_open``: secret, output: a file
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from training_gym.aggregate.outer_step import catch_up
from training_gym.data.dataset import Split
from training_gym.data.shards import Layout, ShardSize
from training_gym.exchange.deadlines import start_slot_state
from training_gym.exchange.early_start import start_parameters
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import GymError
from training_gym.units.checkpoint import load_state, map_state, save_state
from training_gym.units.replica_state import error_feedback_digest, write_slot_state
from training_gym.units.trace import Unit, UnitResult, state_path
from zoo_protocol.hashing import to_hex

Task = Mapping[str, Any]
_T = TypeVar("_T")


class TaskError(GymError):
    """A malformed task, refused before any work."""


def take(task: Task, field: str, kind: type[_T]) -> _T:
    """Return ``task[field]``, exactly a ``kind``. Raises TaskError: missing or other type."""
    value = task.get(field)
    if type(value) is not kind:
        raise TaskError("invalid_task", f"task.{field}", f"must be a {kind.__name__}, got {value!r:.80}")
    return value


def take_hash(task: Task, field: str) -> str:
    """Return ``task[field]``, which must be 0x hex of 32 bytes."""
    value = take(task, field, str)
    if not re.fullmatch("0x[0-9a-f]{64}", value):
        raise TaskError("invalid_task", f"task.{field}", "must be 0x and 64 lower-case hex digits")
    return value


def take_count(task: Task, field: str, below: int) -> int:
    """Return ``task[field]``, which must be an integer from 0 to ``below - 1``."""
    value = take(task, field, int)
    if not 0 <= value < below:
        raise TaskError("invalid_task", f"task.{field}", f"must be from 0 to {below - 1}, got {value}")
    return value


def take_file(task: Task, field: str) -> bytes:
    """Return the content of the file that ``task[field]`` names."""
    path = Path(take(task, field, str))
    try:
        return path.read_bytes()
    except OSError as error:
        raise TaskError("missing_input", f"task.{field}", f"cannot be read: {error.strerror}") from error


def take_optional_file(task: Task, field: str) -> bytes | None:
    """Return the content of the file that ``task[field]`` names; None for null."""
    return None if task.get(field) is None else take_file(task, field)


def take_path(task: Task, field: str) -> Path:
    """Return the file that ``task[field]`` names, to be mapped. Raises TaskError: missing."""
    path = Path(take(task, field, str))
    if not path.is_file():
        raise TaskError("missing_input", f"task.{field}", "cannot be read: the file is missing")
    return path


def take_optional_path(task: Task, field: str) -> Path | None:
    """Return the file that ``task[field]`` names; None for null."""
    return None if task.get(field) is None else take_path(task, field)


def catch_up_model(task: Task) -> None:
    """Run a ``catch_up`` task: apply the updates and write the model.

    Raises:
        TaskError: malformed task.
        GymError: the model, or an update of an untrusted peer, is malformed.
    """
    spec, paths = take_spec(task), take(task, "updates", list)
    updates = (take_file({"updates": path}, "updates") for path in paths)
    model = load_state(spec, take_file(task, "checkpoint"))
    catch_up(spec, model, updates)
    Path(take(task, "output", str)).write_bytes(save_state(model))


def take_spec(task: Task) -> TrainingSpec:
    return TrainingSpec.from_dict(take(task, "spec", dict))


def require_environment(task: Task, environment: str) -> str:
    """Return the task's environment class. Raises TaskError: it is not ``environment``."""
    wanted = take_hash(task, "environment")
    if wanted != environment and not is_across(task):
        raise TaskError("environment_mismatch", "task.environment", f"is {wanted}; this process is of {environment}")
    return wanted


def take_unit(task: Task, environment: str, device: str) -> Unit:
    """Return the unit of a ``train`` or ``replay`` task.

    Raises:
        TaskError: malformed task, or one of another environment class than ``environment``.
        SpecError, StateError: malformed specification or input file.
    """
    spec = take_spec(task)
    wanted = require_environment(task, environment)
    checkpoint, eager = map_state(spec, take_path(task, "checkpoint")), take_optional_file(task, "eager_payload")
    return Unit(
        spec=spec,
        job_id=take_hash(task, "job_id"),
        round=take_count(task, "round", spec.training.rounds),
        slot=take_count(task, "slot", 1 << 32),
        checkpoint=start_parameters(spec, checkpoint, eager),
        train=take_split(task, spec, "train_data"),
        slot_state=start_slot_state(
            spec, take_optional_path(task, "slot_state"), take_optional_file(task, "restored_payload")
        ),
        environment=wanted,
        device=device,
        base=take_base(task),
        validation=None if task.get("validation_data") is None else take_split(task, spec, "validation_data"),
        evaluated=None if eager is None else checkpoint,
    )


def take_base(task: Task) -> dict[str, Path] | None:
    """Return the base model's files that units read, by name. Raises TaskError: malformed task."""
    return None if task.get("base") is None else {name: Path(path) for name, path in take(task, "base", dict).items()}


def take_split(task: Task, spec: TrainingSpec, key: str) -> Split:
    """Return the split whose present shards are files, mapped into memory.

    Raises:
        TaskError: malformed task.
        ManifestError, StateError: another kind of samples, or files that are not those of the manifest.
    """
    described = take(task, key, dict)
    layout, sizes = take(described, "layout", dict), take(described, "sizes", list)
    if layout.keys() != set(Layout.__slots__):
        raise TaskError("malformed", f"task.{key}.layout", f"must have the keys {', '.join(Layout.__slots__)}")
    present = {int(shard): np.memmap(path, np.uint8, "r") for shard, path in take(described, "files", dict).items()}
    return Split(spec, Layout(**layout), [ShardSize(*size) for size in sizes], present)


def is_across(task: Task) -> bool:
    """Return whether a ``replay`` task is a cross-class check."""
    return bool(task.get("kind") == "replay" and task.get("across"))


def write_unit_result(unit: Unit, result: UnitResult, output: Path) -> dict[str, Any]:
    """Write a unit's files into ``output``; returns the result object with their paths."""
    payload, slot_state = output / "payload.bin", output / "slot-state.safetensors"
    payload.write_bytes(result.payload)
    write_slot_state(slot_state, result.slot_state)
    return {
        "payload": str(payload),
        "payload_sha256": to_hex(result.payload_sha256),
        "slot_state": str(slot_state),
        "slot_state_digest": to_hex(result.slot_state_digest),
        "states": [str(state_path(output, segment)) for segment in range(unit.spec.segments)],
        "state_digests": [to_hex(digest) for digest in result.state_digests],
        "begun": {
            "error_feedback": to_hex(error_feedback_digest(unit.slot_state.error_feedback)),
            "steps": unit.slot_state.steps,
        },
        "leaves": [to_hex(leaf) for leaf in result.leaves],
        "trace_root": to_hex(result.trace_root),
        "end_parameters_digest": to_hex(result.end_parameters_digest),
        "train_loss": result.train_loss,
        "steps": result.steps,
        "evaluation": result.evaluation.decode(),
    }
