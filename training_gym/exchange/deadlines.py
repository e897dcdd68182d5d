"""Until when a round waits, and what a late payload counts. Pure rules; times are seconds after the round's start."""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

import numpy as np

from training_gym.aggregate.aggregation import WEIGHT_ONE
from training_gym.compress.link_adaptation import with_top_k
from training_gym.compress.payload_format import decode, top_k_of
from training_gym.spec.config import TrainingSpec
from training_gym.units.replica_state import ReplicaState, load_slot_state

_Time = TypeVar("_Time", float, datetime)


SPREADS = 3.0


LEAST_SLACK = 0.1


OVERLAPPED_SLACK = 0.5
"""Of a job whose units do not wait for the round: until its checkpoint is needed, only who is late is waited for."""


MAX_STALENESS = 4


def quorum(expected: int) -> int:
    """Payloads of ``expected`` without which a round does not close: two thirds, rounded up."""
    return -(-2 * expected // 3)


def deadline(offsets: Sequence[float], least_slack: float = 0.0, share: float = LEAST_SLACK) -> float:
    """When a round that has its quorum stops waiting: median + 3 median absolute deviations of recent arrivals.

    The slack is at least a ``share`` of the median and ``least_slack`` seconds, so that nodes of one speed do not race
    each other.

    Raises:
        ValueError: if no arrival is known.
    """
    if not len(offsets):
        raise ValueError("no arrival is known")
    times = np.asarray(offsets, np.float64)
    middle = float(np.median(times))
    spread = float(np.median(np.abs(times - middle)))
    return middle + max(SPREADS * spread, share * middle, least_slack)


def round_start(offers: Sequence[_Time], expected: int) -> _Time | None:
    """When a round began whose units are offered one by one: once a quorum of ``expected`` was; None before that."""
    return sorted(offers)[quorum(expected) - 1] if len(offers) >= quorum(expected) else None


def last_offer(taken: Sequence[float], limit: float) -> float:
    """Until when a unit may be offered that a round with the deadline ``limit`` is to wait for.

    Of what recent units ``taken`` from offer to delivery the least counts: what is offered later is infeasible, whoever
    computes it.

    Raises:
        ValueError: if nothing is known of recent units.
    """
    return limit - min(taken)


def latest_early_start(taken: Sequence[float], limit: float) -> float:
    """Until when a unit may be offered that its round does not need yet: later than this one of the usual length would
    come after the deadline ``limit``.

    Raises:
        ValueError: if nothing is known of recent units.
    """
    if not len(taken):
        raise ValueError("nothing is known of recent units")
    return limit - float(np.median(np.asarray(taken, np.float64)))


def restore_error_feedback(spec: TrainingSpec, slot_state: ReplicaState, payload: bytes) -> ReplicaState:
    """The state of a slot whose ``payload`` came too late to be used: what was sent is unsent again.

    One float32 addition an element, so anybody makes the same state; where a sum is beyond float32 it is left away.

    Raises:
        PayloadError: naming what is malformed in a payload from a stranger.
    """
    left = slot_state.error_feedback
    with np.errstate(over="ignore"):
        total = left + decode(spec, payload).dense()
    return replace(slot_state, error_feedback=np.where(np.isfinite(total), total, left))


def start_slot_state(spec: TrainingSpec, data: bytes | None, payload: bytes | None) -> ReplicaState:
    """What a unit starts with: the state in a slot state file, or the fresh one; a payload is added back if given.

    Of each chunk the payload has as many entries as its own unit was told, which need not be what ``spec`` says.

    Raises:
        StateError, PayloadError: naming what is malformed.
    """
    state = load_slot_state(spec, data)
    return state if payload is None else restore_error_feedback(with_top_k(spec, top_k_of(payload)), state, payload)


def staleness_weight(rounds_late: int) -> int:
    """The weight 1 / sqrt(1 + s) of a payload of s rounds ago, in units of 1 / ``WEIGHT_ONE``; 0 if it is too old.

    The square root is the usual discount of buffered asynchronous training (Nguyen et al., 2022).

    Raises:
        ValueError: if ``rounds_late`` is negative.
    """
    if rounds_late < 0:
        raise ValueError("a payload cannot be early")
    return math.isqrt(WEIGHT_ONE**2 // (1 + rounds_late)) if rounds_late <= MAX_STALENESS else 0
