"""Execution of a work unit, whole by its node or replayed by segments.

Both use one code path: a boundary state is a value, and a segment is a function from one state to the next.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from training_gym.compress.payload_format import MAX_MAGNITUDE, encode_step, subtract, uplink
from training_gym.data.dataset import evaluated_numbers
from training_gym.evaluate.loss import sums_of
from training_gym.model.layout import Arrays, NamedArrays
from training_gym.model.tensors import Vector, mapped_arrays, tensor_digest, write_arrays
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import PayloadError, SpecError, StartStateMismatch, TrainingDiverged
from training_gym.units.checkpoint import CheckpointManifest, save_state, write_checkpoint
from training_gym.units.replica_state import ReplicaState, error_feedback_digest, save_slot_state
from training_gym.units.steps import Group, OnStep, Train, ignore_step, network_of, train_steps
from training_gym.units.trace import (
    Unit,
    UnitResult,
    inner_digest,
    inner_leaf,
    leaf_at,
    load_boundary_state,
    moments_of,
    parameters_of,
    start_state,
    state_digest,
    state_path,
    steps_after,
)
from zoo_protocol.content.unixfs import cid_of_file


def run_unit(
    unit: Unit,
    workdir: Path,
    on_step: OnStep = ignore_step,
    group: Group | None = None,
    train: Train | None = None,
    parent: str | None = None,
) -> UnitResult:
    """Train the unit, write the start state of each segment to ``workdir``, compress the result.

    For a group ``workdir`` also gets the end state and its checkpoint (``checkpoint.write_checkpoint``).

    Args:
        unit: the unit to train.
        workdir: existing directory for the states.
        on_step: observer of inner steps.
        group: processes that train it together; None trains it alone.
        train: replacement of :func:`train_steps`: by several processes, or by an adversary (``adversaries.py``).
        parent: CID of a group's start checkpoint manifest, for the manifest of its end.

    Raises:
        SpecError: the specification averages gradients at every step without a ``group``, or the reverse.
        TrainingDiverged: a loss, a gradient or the end is not finite.
    """
    if (unit.spec.training.averaging == "steps") != (group is not None):
        raise SpecError("unsupported_value", "training_config.averaging", "'steps' is for a group, 'rounds' for a unit")
    state, feedback = start_state(unit), error_feedback_digest(unit.slot_state.error_feedback)
    train, digests, loss = train or partial(train_steps, group=group), [], 0.0
    with ThreadPoolExecutor(1) as hashing:  # from the file, while the next segment trains
        for segment in range(unit.spec.segments):
            path = state_path(workdir, segment)
            write_arrays(path, state)
            state = mapped_arrays(path)  # training makes its own copy
            digests.append(hashing.submit(inner_digest, unit, segment, state, feedback))
            state, loss = train(unit, state, segment_steps(unit.spec, segment), on_step)
    result = unit_result(unit, [digest.result() for digest in digests], state, loss)
    if group is not None:  # without aggregation this state is the group's result
        write_arrays(state_path(workdir, unit.spec.segments), state)
        _keep_checkpoint(unit, state, result, parent, workdir)
    return result


def _keep_checkpoint(unit: Unit, state: NamedArrays, result: UnitResult, parent: str | None, workdir: Path) -> None:
    model, slot_state = save_state(parameters_of(state)), save_slot_state(result.slot_state)
    manifest = CheckpointManifest(
        job_id=unit.job_id,
        round=unit.round + 1,
        parent=parent,
        model=cid_of_file(model),
        outer_state=None,
        update=None,
        aggregation=None,
        slot_states={str(unit.slot): cid_of_file(slot_state)},
        data_cursor=(unit.round + 1) * unit.spec.training.inner_steps,
        spec_hash=unit.spec.spec_hash(),
    )
    write_checkpoint(manifest, [model, slot_state], workdir)


def replay_segment(
    unit: Unit, segment: int, start_leaf: bytes, state_file: bytes | Path | None, on_step: OnStep = ignore_step
) -> bytes:
    """Return the leaf that :func:`replay` returns."""
    return replay(unit, segment, start_leaf, state_file, on_step)[0]


def replay(
    unit: Unit, segment: int, start_leaf: bytes, state_file: bytes | Path | None, on_step: OnStep = ignore_step
) -> tuple[bytes, bytes | None]:
    """Return the correct leaf ``segment + 1``, from the state that ``start_leaf`` commits to.

    For the last segment, also return the SHA2-256 of the payload.

    Args:
        unit: the unit, with the verifier's own environment class.
        segment: the segment, from 0.
        start_leaf: leaf ``segment`` of the provider's trace.
        state_file: the revealed state. Segment 0 ignores it and starts from checkpoint and replica state.
        on_step: observer of inner steps.

    Raises:
        StartStateMismatch: the start state is not the committed one.
        StateError: the revealed file is malformed.
        TrainingDiverged: a loss, a gradient or the unit's end is not finite.
    """
    state, loss = replay_end_state(unit, segment, start_leaf, state_file, on_step)
    if segment + 1 < unit.spec.segments:
        return inner_leaf(unit, segment + 1, state, error_feedback_digest(unit.slot_state.error_feedback)), None
    end = unit_result(unit, [], state, loss)
    return leaf_at(unit.place, unit.spec.segments, end.state_digests[-1]), end.payload_sha256


def replay_end_state(
    unit: Unit, segment: int, start_leaf: bytes, state_file: bytes | Path | None, on_step: OnStep = ignore_step
) -> tuple[Arrays, float]:
    """Return the uncompressed end state of :func:`replay`, and its mean loss."""
    state: NamedArrays
    if segment == 0:
        state = start_state(unit)
    elif state_file is None:
        raise StartStateMismatch("start_state_missing", "state", f"segment {segment} needs the revealed start state")
    else:
        state = load_boundary_state(unit.spec, state_file)
    if inner_leaf(unit, segment, state, error_feedback_digest(unit.slot_state.error_feedback)) != start_leaf:
        raise StartStateMismatch("start_state_mismatch", "state", f"does not hash to the committed leaf {segment}")
    return train_steps(unit, state, segment_steps(unit.spec, segment), on_step)


def segment_steps(spec: TrainingSpec, segment: int) -> range:
    """Return the inner steps of a segment."""
    length = spec.training.segment_steps
    return range(segment * length, (segment + 1) * length)


def unit_result(unit: Unit, digests: Sequence[bytes], state: NamedArrays, loss: float) -> UnitResult:
    """Return the result of a unit that ended in ``state``. Raises TrainingDiverged."""
    payload, error_feedback = compress(unit, state)
    slot_state = ReplicaState(error_feedback, moments_of(state), steps_after(unit, unit.spec.segments))
    digest, parameters = slot_state.digest(), tensor_digest(parameters_of(state))
    evaluation = evaluate_checkpoint(unit)
    return UnitResult(
        payload=payload,
        slot_state=slot_state,
        slot_state_digest=digest,
        place=unit.place,
        state_digests=[*digests, state_digest(parameters, digest, payload, evaluation)],
        end_parameters_digest=parameters,
        train_loss=loss,
        steps=unit.spec.training.inner_steps,
        evaluation=evaluation,
    )


def evaluate_checkpoint(unit: Unit) -> bytes:
    """Return the record of the unit's validation samples on its checkpoint's model, or empty."""
    if unit.validation is None:
        return b""
    numbers = evaluated_numbers(unit.spec, unit.slot, unit.validation.order)
    if not numbers:
        return b""
    network = network_of(unit, unit.checkpoint if unit.evaluated is None else unit.evaluated)
    return sums_of(unit.spec, network, unit.validation, numbers, unit.device).to_bytes()


def compress(unit: Unit, state: NamedArrays) -> tuple[bytes, Vector]:
    """Return the payload of the pseudo-gradient plus error feedback, and the new error feedback.

    Raises:
        TrainingDiverged: the unit's end is not finite, or too far for an aggregation.
    """
    wanted, parameters, start = np.empty(unit.spec.num_parameters(), np.float32), parameters_of(state), 0
    decay, feedback = np.float32(unit.spec.training.error_feedback_decay), unit.slot_state.error_feedback
    for name in sorted(parameters):
        pseudo_gradient = np.subtract(unit.checkpoint[name], parameters[name]).reshape(-1)
        part = slice(start, start + len(pseudo_gradient))
        np.add(decay * feedback[part], pseudo_gradient, out=wanted[part])
        start = part.stop
    try:
        payload, sent = encode_step(uplink(unit.spec), wanted)
    except PayloadError as error:  # the last loss was finite, the state after it is not
        raise TrainingDiverged("diverged", "training_config.learning_rate", "the unit's end is not finite") from error
    if sent.is_out_of_range:
        detail = f"the unit moved a parameter by more than {MAX_MAGNITUDE:g}"
        raise TrainingDiverged("diverged", "training_config.learning_rate", detail)
    subtract(wanted, sent)
    return payload, wanted
