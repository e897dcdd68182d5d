"""How much of its update a node sends, by the speed of its link. Pure; no torch.

The specification's ``top_k`` is the most. Below it stands a fixed ladder down to an eighth of the bytes, and a unit is
given the highest rung whose payload goes up in ``SHARE`` of the time that the unit computes. What is not sent stays in
the error feedback; without error feedback it would be lost, so there is nothing to choose then.
"""

from bisect import bisect_right
from dataclasses import replace

from training_gym.compress.payload_format import Format, Payload, decode, payload_size, top_k_of
from training_gym.spec.config import TrainingSpec

SHARE = 0.05


RUNGS = (2, 4, 8)
"""Rungs below the specification's ``top_k``: the most entries that take at most one such part of its payload's bytes,
and never fewer than 1. Bytes and not entries are divided, since all entries need no indices, and half of them do: at 2
bits they take as much as all."""


def top_k_levels(spec: TrainingSpec) -> list[int]:
    """Entries per chunk that a unit of this job may be given, highest first."""
    size, training = spec.num_parameters(), spec.training

    def most_bytes(top_k: int) -> int:
        return Format(size, top_k, training.value_bits, layout=b"").max_bytes

    if not training.error_feedback_decay:
        return [training.top_k]
    # Below CHUNK more entries never take fewer bytes; of 1, 2, 3, … so many fit.
    fewer, full = range(1, training.top_k), most_bytes(training.top_k)
    fitting = (bisect_right(fewer, full // part, key=most_bytes) for part in RUNGS)
    return list(dict.fromkeys([training.top_k, *(max(1, top_k) for top_k in fitting)]))


def with_top_k(spec: TrainingSpec, top_k: int | None) -> TrainingSpec:
    """The specification of a unit that sends ``top_k`` entries per chunk; None leaves it as it is."""
    return spec if top_k is None else replace(spec, training=replace(spec.training, top_k=top_k))


def choose_top_k(spec: TrainingSpec, up_bytes_per_second: int | None, compute_seconds: float | None) -> int:
    """Entries per chunk for a node's next unit, by its last; the most where nothing was measured."""
    rungs = top_k_levels(spec)
    if not up_bytes_per_second or not compute_seconds:
        return rungs[0]
    room = SHARE * compute_seconds * up_bytes_per_second
    return next((top_k for top_k in rungs if payload_size(with_top_k(spec, top_k)) <= room), rungs[-1])


def decode_adapted(spec: TrainingSpec, payload: bytes) -> Payload:
    """The entries of a unit's payload from a stranger, whatever rung of the job's ladder it is of.

    Raises:
        PayloadError: naming what is malformed.
    """
    told = top_k_of(payload)
    return decode(with_top_k(spec, told if told in top_k_levels(spec) else None), payload)
