"""First segments: the rule that detects copied ends, and the digest of the inner state."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.detection.replays import unit_of
from market.domain.verification.canaries import agreed_digest, inner_step, is_claim_confirmed
from market.verification.replays.verifier_choice import ReplayRequest, _attempt
from market.verification.samples.models import Replay
from training_gym.model.tensors import tensor_digest
from training_gym.spec.errors import StartStateMismatch
from training_gym.units.replica_state import error_feedback_digest
from training_gym.units.steps import train_steps
from training_gym.units.trace import inner_leaf, start_state
from training_gym.units.unit import replay
from zoo_compute.node.execution.tasks import TaskError
from zoo_compute.node.execution.trainer import InnerStateRequest, replay_with_inner_digest
from zoo_protocol.hashing import sha256, to_hex

A, B, C = "0xaa", "0xbb", "0xcc"
ENVIRONMENT = to_hex(sha256(b"environment"))
NONCE = sha256(b"nonce")


@pytest.mark.parametrize(
    ("digests", "right", "settles_one", "settles_two"),
    [
        ([], None, False, False),
        ([A], A, True, False),
        ([A, A], A, True, True),
        ([A, B], None, False, False),
        ([A, B, B], None, False, False),  # against a possible second copier, two answers prove nothing
        ([A, B, B, A], None, False, False),
        ([A, B, B, B], B, True, True),
        ([A, B, B, C], None, False, False),
        ([A, B, B, C, B], B, True, True),
    ],
)
def test_digest_needs_agreement(digests: list[str], right: str | None, settles_one: bool, settles_two: bool) -> None:
    assert agreed_digest(digests) == right
    assert is_claim_confirmed(digests, needs_duplicate=False) is settles_one
    assert is_claim_confirmed(digests, needs_duplicate=True) is settles_two


@given(st.lists(st.sampled_from("ABC"), max_size=9))
def test_agreed_digest_leads_by_two(digests: list[str]) -> None:
    right = agreed_digest(digests)
    if right is not None:
        assert all(digests.count(right) - digests.count(wrong) >= 2 for wrong in {*digests} - {right})


@given(st.integers(0, 2**64 - 1), st.integers(2, 10_000))
def test_inner_state_precedes_visible_end_closely(lot: int, steps: int) -> None:
    step = inner_step(lot, steps, is_end_revealed=True)
    assert step is not None
    assert 1 <= step < steps
    assert steps - step <= max(1, steps // 8)


def test_last_eighth_steps_are_asked_except_single_step() -> None:
    assert {inner_step(lot, 80, is_end_revealed=True) for lot in range(1_000)} == set(range(70, 80))
    assert inner_step(0, 1, is_end_revealed=True) is None


@given(st.integers(0, 2**64 - 1), st.integers(1, 10_000))
def test_unseen_end_is_asked_when_no_saving_possible(lot: int, steps: int) -> None:
    assert inner_step(lot, steps, is_end_revealed=False) == steps


def asked_by(attempts: list[int]) -> Any:
    return [Replay(attempt=attempt) for attempt in attempts]


def question(*replays: int, other: tuple[int, ...] = ()) -> ReplayRequest:
    return ReplayRequest(None, 0, None, "", asked_by([*replays]), asked_by([*other]))  # type: ignore[arg-type]


def test_tie_break_number_hides_first_asked_verifier() -> None:
    assert {_attempt(question()) for _ in range(100)} == {0, 1, 2}
    assert {_attempt(question(1)) for _ in range(100)} == {0, 2}
    assert {_attempt(question(other=(1, 2))) for _ in range(100)} == {0}
    assert _attempt(question(0, 1, other=(2,))) == 3
    assert _attempt(question(0, 1, 3, other=(2,))) == 4


@pytest.mark.parametrize("name", ["small", "adamw"])
@pytest.mark.parametrize(("segment_steps", "step"), [(2, 1), (2, 2), (4, 3), (4, 4), (8, 1), (8, 7), (8, 8)])  # of 8
def test_inner_state_detour_changes_no_bit(name: str, segment_steps: int, step: int) -> None:
    whole = unit_of(name, 0, ENVIRONMENT)
    training = replace(whole.spec.training, segment_steps=segment_steps)
    unit = replace(whole, spec=replace(whole.spec, training=training))
    start = inner_leaf(unit, 0, start_state(unit), error_feedback_digest(unit.slot_state.error_feedback))
    seen: list[int] = []
    end, digest = replay_with_inner_digest(unit, InnerStateRequest(step, NONCE), start, lambda at, _: seen.append(at))
    assert end == replay(unit, 0, start, None)[0]
    assert seen == list(range(segment_steps))  # each once
    state, _ = train_steps(unit, start_state(unit), range(step), lambda *_: None)
    assert digest == tensor_digest({"!nonce": np.frombuffer(NONCE, "<f4"), **state})


def test_digest_covers_nonce_and_whole_state() -> None:
    unit = unit_of("adamw", 0, ENVIRONMENT)
    state = start_state(unit)
    digests = {InnerStateRequest(1, NONCE).digest(state), InnerStateRequest(1, sha256(NONCE)).digest(state)}
    for name in state:
        other = {**state, name: np.nextafter(state[name], np.float32(9))}
        digests.add(InnerStateRequest(1, NONCE).digest(other))
    assert len(digests) == 2 + len(state)


def test_start_differing_from_commitment_is_refused() -> None:
    unit = unit_of("small", 0, ENVIRONMENT)
    with pytest.raises(StartStateMismatch):
        replay_with_inner_digest(unit, InnerStateRequest(1, NONCE), sha256(b"another"), lambda *_: None)


@pytest.mark.parametrize(
    ("segment", "inner"),
    [
        (1, {"step": 1, "nonce": to_hex(NONCE)}),
        (0, {"step": 0, "nonce": to_hex(NONCE)}),
        (0, {"step": 3, "nonce": to_hex(NONCE)}),  # the end is 2
        (0, {"step": True, "nonce": to_hex(NONCE)}),
        (0, {"step": 1}),
        (0, {"step": 1, "nonce": "0x12"}),
        (0, [1, to_hex(NONCE)]),
    ],
)
def test_inner_state_is_asked_only_in_first_segment(segment: int, inner: object) -> None:
    unit = unit_of("small", 0, ENVIRONMENT)
    assert InnerStateRequest.of({"inner": {"step": 1, "nonce": to_hex(NONCE)}}, unit, 0) == InnerStateRequest(1, NONCE)
    assert InnerStateRequest.of({"inner": None}, unit, segment) is None
    assert InnerStateRequest.of({}, unit, segment) is None
    with pytest.raises(TaskError):
        InnerStateRequest.of({"inner": inner}, unit, segment)
