"""Replica states: files, digests, and continuation of a unit from them."""

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kit.training import SMALL, spec_of, unit_of

from training_gym.compress.payload_format import decode, encode
from training_gym.exchange.deadlines import restore_error_feedback
from training_gym.model.tensors import save_arrays
from training_gym.spec.errors import StateError
from training_gym.units import replica_state, trace
from training_gym.units.replica_state import MAX_STEPS, ReplicaState, fresh_slot_state, load_slot_state, save_slot_state
from training_gym.units.trace import Unit, inner_leaf, load_boundary_state, moments_of, state_path, stream_inner_leaf
from training_gym.units.unit import run_unit

SPEC = spec_of(SMALL, rounds=4, inner_steps=4, segment_steps=2, batch_size=4, warmup_steps=3, top_k=64, seed=3)


def trained(state: ReplicaState, round_: int, directory: Path) -> tuple[ReplicaState, Unit]:
    unit = unit_of(SPEC, round=round_, slot_state=state)
    result = run_unit(unit, directory)
    file = directory / f"left-{round_}"
    replica_state.write_slot_state(file, result.slot_state)
    left = load_slot_state(SPEC, file)
    assert left.digest() == load_slot_state(SPEC, save_slot_state(left)).digest() == result.slot_state_digest
    assert save_slot_state(left) == file.read_bytes()
    return left, unit


def test_replica_begins_without_state() -> None:
    fresh = load_slot_state(SPEC, None)
    assert fresh.steps == 0
    assert not fresh.error_feedback.any()
    assert not any(moment.any() for moment in fresh.moments.values())
    assert load_slot_state(SPEC, save_slot_state(fresh)).digest() == fresh.digest()


def test_unit_starts_with_moments_of_previous_unit(tmp_path: Path) -> None:
    first, _ = trained(fresh_slot_state(SPEC), 0, tmp_path)
    assert first.steps == 4
    second, _ = trained(first, 1, tmp_path)
    assert second.steps == 8
    start = load_boundary_state(SPEC, state_path(tmp_path, 0).read_bytes())
    assert all((first.moments[name] == moment).all() for name, moment in moments_of(start).items())
    afresh, _ = trained(fresh_slot_state(SPEC), 1, tmp_path)
    assert afresh.digest() != second.digest()


def test_digest_binds_every_part(tmp_path: Path) -> None:
    state, _ = trained(fresh_slot_state(SPEC), 0, tmp_path)
    feedback = state.error_feedback.copy()
    feedback[5] += 1
    name = "exp_avg.lm_head.weight"
    moments = {**state.moments, name: state.moments[name] + 1}
    others = [replace(state, error_feedback=feedback), replace(state, moments=moments), replace(state, steps=3)]
    assert len({each.digest() for each in (state, *others)}) == 4


@pytest.mark.parametrize("steps", [-1.0, -0.0, 0.5, 2.0 * MAX_STEPS])
def test_invalid_count_is_refused(steps: float) -> None:
    fresh = fresh_slot_state(SPEC)
    arrays = {"error_feedback": fresh.error_feedback, **fresh.moments}
    with pytest.raises(StateError) as refusal:
        load_slot_state(SPEC, save_arrays({**arrays, "steps": np.array([steps], np.float32)}))
    assert refusal.value.field == "slot_state.steps"
    with pytest.raises(StateError):
        load_slot_state(SPEC, save_arrays(arrays))


def test_non_canonical_file_is_refused() -> None:
    good = save_slot_state(fresh_slot_state(SPEC))
    (length,) = struct.unpack_from("<Q", good)
    header, values = json.loads(good[8 : 8 + length]), good[8 + length :]
    changed = [{"__metadata__": {"a": "b"}, **header}, dict(reversed(header.items()))]
    texts = [json.dumps(one, separators=(",", ":")).encode() for one in changed]
    for text in (*texts, json.dumps(header).encode(), good[8 : 8 + length] + b" " * 8):
        data = struct.pack("<Q", len(text)) + text + values
        for read in (load_slot_state, lambda spec, data: replica_state.stream_slot_state(spec, [data])):
            with pytest.raises(StateError) as refusal:
                read(SPEC, data)
            assert (refusal.value.code, refusal.value.field) == ("malformed", "slot_state")


def test_count_stops_where_float32_ends(tmp_path: Path) -> None:
    state = replace(fresh_slot_state(SPEC), steps=MAX_STEPS - 1)
    left, _ = trained(state, 0, tmp_path)
    assert left.steps == MAX_STEPS


def test_excluded_values_return_to_error_feedback() -> None:
    learned = np.random.default_rng(0).normal(0, 1e-3, SPEC.num_parameters()).astype(np.float32)
    payload = encode(SPEC, learned)
    sent = decode(SPEC, payload).dense()
    state = replace(fresh_slot_state(SPEC), error_feedback=learned - sent, steps=4)
    again = restore_error_feedback(SPEC, state, payload)
    assert (again.error_feedback == state.error_feedback + sent).all()
    assert (again.moments, again.steps) == (state.moments, 4)


def pieces_of(content: bytes, size: int) -> list[bytes]:
    return [content[start : start + size] for start in range(0, len(content), size)]


@pytest.mark.parametrize("size", [1, 7, 4096, 1 << 20])
def test_streamed_states_equal_those_read_whole(tmp_path: Path, size: int) -> None:
    state, unit = trained(fresh_slot_state(SPEC), 0, tmp_path)
    file = save_slot_state(state)
    assert len(file) == replica_state.slot_state_bytes(SPEC)
    assert replica_state.stream_slot_state(SPEC, pieces_of(file, size)) == replica_state.facts_of(state)
    middle = state_path(tmp_path, 1).read_bytes()
    assert len(middle) == trace.boundary_state_bytes(SPEC)
    start = replica_state.facts_of(unit.slot_state)
    feedback = replica_state.error_feedback_digest(unit.slot_state.error_feedback)
    expected = inner_leaf(unit, 1, load_boundary_state(SPEC, middle), feedback)
    assert stream_inner_leaf(SPEC, unit.place, 1, start, pieces_of(middle, size)) == expected


def test_changed_value_is_refused_or_changes_digest() -> None:
    file = bytearray(save_slot_state(fresh_slot_state(SPEC)))
    before = replica_state.stream_slot_state(SPEC, [bytes(file)])
    file[-4] ^= 1  # the last value of the last array, which is the count of steps, is checked by itself
    with pytest.raises(StateError, match="whole number"):
        replica_state.stream_slot_state(SPEC, [bytes(file)])
    file[-4] ^= 1
    file[-8] ^= 1
    assert replica_state.stream_slot_state(SPEC, [bytes(file)]).digest != before.digest


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda file: file[:-1], "malformed"),
        (lambda file: file[:40], "malformed"),
        (lambda file: b"", "malformed"),
        (lambda file: file + b"\0", "too_large"),
        (lambda file: file[:8] + b" " + file[9:], "malformed"),
        (lambda file: file[:-404] + b"\0\0\xc0\x7f" + file[-400:], "not_finite"),
    ],
    ids=["cut", "cut in its header", "empty", "too long", "another header", "no number"],
)
def test_corrupted_file_is_refused_while_reading(spoil: Callable[[bytes], bytes], code: str) -> None:
    file = spoil(save_slot_state(fresh_slot_state(SPEC)))
    with pytest.raises(StateError) as refused:
        replica_state.stream_slot_state(SPEC, pieces_of(file, 1000))
    assert refused.value.code == code
