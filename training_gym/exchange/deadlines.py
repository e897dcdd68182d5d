"""Deadlines of rounds and weights of late payloads. Pure; seconds after the start."""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import numpy as np

from training_gym.aggregate.robust import WEIGHT_ONE
from training_gym.compress.link_adaptation import with_top_k
from training_gym.compress.payload_format import decode, top_k_of
from training_gym.spec.config import TrainingSpec
from training_gym.units.replica_state import ReplicaState, load_slot_state

_Time = TypeVar("_Time", float, datetime)
SPREADS = 3.0
MIN_SLACK_SHARE = 0.1
OVERLAPPED_SLACK = 0.5
"""Slack share of a job with overlapped rounds: until its checkpoint is needed, only stragglers delay the round."""
MAX_STALENESS = 4


def quorum(expected: int) -> int:
    """Return how many of ``expected`` payloads a round needs to close: two thirds, rounded up."""
    return -(-2 * expected // 3)


def deadline(offsets: Sequence[float], min_slack_seconds: float = 0.0, share: float = MIN_SLACK_SHARE) -> float:
    """Return a round's deadline after its quorum: median + 3 MAD of recent arrivals.

    The slack is at least a ``share`` of the median and ``min_slack_seconds``, so that nodes of one speed do not race.

    Raises:
        ValueError: ``offsets`` is empty.
    """
    if not len(offsets):
        raise ValueError("offsets is empty; expected recent arrivals")
    times = np.asarray(offsets, np.float64)
    middle = float(np.median(times))
    spread = float(np.median(np.abs(times - middle)))
    return middle + max(SPREADS * spread, share * middle, min_slack_seconds)


def round_start(offers: Sequence[_Time], expected: int) -> _Time | None:
    """Return the start of a round of single offers: its quorum's offer; None before."""
    return sorted(offers)[quorum(expected) - 1] if len(offers) >= quorum(expected) else None


def last_offer(taken: Sequence[float], limit: float) -> float:
    """Return the latest offer of a unit that a round with the deadline ``limit`` waits for.

    The shortest of the recent durations ``taken``, from offer to delivery, counts. A later unit is infeasible.

    Raises:
        ValueError: ``taken`` is empty.
    """
    return limit - min(taken)


def latest_early_start(taken: Sequence[float], limit: float) -> float:
    """Return the latest offer of an overlapped round's unit that can meet ``limit``.

    Raises:
        ValueError: ``taken`` is empty.
    """
    if not len(taken):
        raise ValueError("taken is empty; expected durations of recent units")
    return limit - float(np.median(np.asarray(taken, np.float64)))


def restore_error_feedback(spec: TrainingSpec, slot_state: ReplicaState, payload: bytes) -> ReplicaState:
    """Return ``slot_state`` with the late, unused ``payload`` added back to its error feedback.

    One float32 addition per element, so every machine computes the same state. Elements that overflow keep their value.

    Raises:
        PayloadError: the untrusted payload is malformed.
    """
    left = slot_state.error_feedback
    with np.errstate(over="ignore"):
        total = left + decode(spec, payload).dense()
    return replace(slot_state, error_feedback=np.where(np.isfinite(total), total, left))


def start_slot_state(spec: TrainingSpec, data: bytes | Path | None, payload: bytes | None) -> ReplicaState:
    """Return a unit's start state: from a file or fresh, with ``payload`` restored.

    The payload's own header gives its entries per chunk, which may differ from those of ``spec``.

    Raises:
        StateError, PayloadError: the data is malformed.
    """
    state = load_slot_state(spec, data)
    return state if payload is None else restore_error_feedback(with_top_k(spec, top_k_of(payload)), state, payload)


def staleness_weight(rounds_late: int) -> int:
    """Return 1 / sqrt(1 + s) for a payload of s rounds ago, in 1 / ``WEIGHT_ONE``, or 0.

    The square root is the usual discount of buffered asynchronous training (Nguyen et al., 2022).

    Raises:
        ValueError: ``rounds_late`` is negative.
    """
    if rounds_late < 0:
        raise ValueError(f"rounds_late is {rounds_late}; expected at least 0")
    return math.isqrt(WEIGHT_ONE**2 // (1 + rounds_late)) if rounds_late <= MAX_STALENESS else 0
