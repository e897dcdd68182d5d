"""The decision rule of canary segments, and their altered start states."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.detection.replays import unit_of
from market.domain.verification.canaries import answer, is_due
from training_gym.units.replica_state import error_feedback_digest
from training_gym.units.trace import Unit, inner_leaf, load_boundary_state, state_path
from training_gym.units.unit import replay_segment, run_unit
from training_gym.verify.canary import altered_state
from zoo_protocol.hashing import sha256, to_hex

A, B, CLAIM = "0xaa", "0xbb", "0xcc"
ENVIRONMENT = to_hex(sha256(b"environment"))


@pytest.mark.parametrize(
    ("results", "found", "found_without_verifiers"),
    [
        ([], None, None),
        ([A], None, None),
        ([A, B], None, None),
        ([A, A], A, A),
        ([A, B, A], None, A),
        ([A, B, B, A], None, None),
        ([A, B, A, A], A, A),
    ],
)
def test_answer_needs_agreement(results: list[str], found: str | None, found_without_verifiers: str | None) -> None:
    assert answer(results, CLAIM) == found
    assert answer(results, CLAIM, no_verifier_left=True) == found_without_verifiers


def test_verifier_answering_claimed_end_has_no_vote() -> None:
    assert answer([CLAIM, CLAIM, CLAIM], CLAIM, no_verifier_left=True) is None
    assert answer([CLAIM, A, CLAIM, CLAIM], CLAIM) is None
    assert answer([CLAIM, A, CLAIM, CLAIM, A], CLAIM) == A


@given(st.integers(0, 9_999), st.integers(0, 10_000))
def test_canary_is_due_by_share(lot: int, canary_bps: int) -> None:
    assert is_due(lot, canary_bps) is (lot < canary_bps)


@given(st.lists(st.sampled_from("ABC"), max_size=9), st.booleans())
def test_answer_leads_by_two_results(results: list[str], no_verifier_left: bool) -> None:
    right = answer(results, CLAIM, no_verifier_left=no_verifier_left)
    if right is not None:
        counts = Counter(results)
        wrong = [count for leaf, count in counts.items() if leaf != right]
        assert counts[right] >= 2
        assert all(counts[right] - count >= (1 if no_verifier_left else 2) for count in wrong)


@given(st.permutations([A, A, A, B, B]))
def test_canary_result_order_does_not_matter(results: list[str]) -> None:
    assert answer(results, CLAIM) is None
    assert answer(results, CLAIM, no_verifier_left=True) == A


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Unit, Path, list[bytes]]:
    unit, directory = unit_of("small", 0, ENVIRONMENT), tmp_path_factory.mktemp("unit")
    return unit, directory, run_unit(unit, directory).leaves


def test_altered_state_replays_to_unclaimed_end(trained: tuple[Unit, Path, list[bytes]]) -> None:
    unit, directory, leaves = trained
    original = state_path(directory, 2).read_bytes()
    ends = set()
    for seed in (1, 2):
        altered = altered_state(unit, 2, original, seed)
        assert altered is not None
        state, leaf = altered
        assert len(state) == len(original)
        assert leaf != leaves[2]
        ends.add(replay_segment(unit, 2, leaf, state))
    assert len(ends | {leaves[3]}) == 3  # each alteration has an end of its own


def test_alteration_is_small_and_spares_decaying_values(trained: tuple[Unit, Path, list[bytes]]) -> None:
    unit, directory, _ = trained
    original = load_boundary_state(unit.spec, state_path(directory, 3).read_bytes())
    altered = altered_state(unit, 3, state_path(directory, 3).read_bytes(), 7)
    assert altered is not None
    state = load_boundary_state(unit.spec, altered[0])
    for name, start in unit.checkpoint.items():
        before, after = original[f"parameters.{name}"], state[f"parameters.{name}"]
        unmoved = original[f"exp_avg.{name}"] == 0
        assert np.array_equal(before[unmoved], after[unmoved])
        assert 0 < np.linalg.norm(after - before) < 0.07 * np.linalg.norm(before - start)
    moments = [name for name in original if not name.startswith("parameters.")]
    assert all(np.array_equal(original[name], state[name]) for name in moments)


def test_unmoved_state_cannot_be_altered(trained: tuple[Unit, Path, list[bytes]]) -> None:
    unit, directory, _ = trained
    assert altered_state(unit, 1, state_path(directory, 0).read_bytes(), 1) is None


def test_leaf_binds_units_error_feedback(trained: tuple[Unit, Path, list[bytes]]) -> None:
    unit, directory, _ = trained
    feedback = np.full_like(unit.slot_state.error_feedback, 0.5)
    other = replace(unit, slot_state=replace(unit.slot_state, error_feedback=feedback))
    altered = altered_state(other, 2, state_path(directory, 2).read_bytes(), 1)
    assert altered is not None
    data, leaf = altered
    assert leaf == inner_leaf(other, 2, load_boundary_state(unit.spec, data), error_feedback_digest(feedback))
