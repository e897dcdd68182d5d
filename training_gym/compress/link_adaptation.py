"""Compression levels: entries per chunk by the speed of a node's link. Pure; no torch.

The highest level is the specification's ``top_k``; the lowest takes an eighth of its bytes. A unit gets the highest
level whose payload uploads within ``SHARE`` of the unit's compute time. Error feedback keeps the rest. Without error
feedback the rest would be lost, so only the highest level is allowed.
"""

from bisect import bisect_right
from dataclasses import replace

from training_gym.compress.payload_format import Format, Payload, decode, payload_size, top_k_of
from training_gym.model.layout import parameter_sizes
from training_gym.spec.config import TrainingSpec

SHARE = 0.05
DIVISORS = (2, 4, 8)
"""Levels below ``top_k``: the most entries whose payload takes at most 1/2, 1/4 and 1/8 of the full payload's bytes.

Bytes are divided, not entries: all entries need no indices. At 2 bits, half of them take as many bytes as all.
"""


def top_k_levels(spec: TrainingSpec) -> list[int]:
    """Return the allowed entries per chunk of this job's units, highest first."""
    sizes, training = parameter_sizes(spec), spec.training

    def max_bytes(top_k: int) -> int:
        return Format(sizes, top_k, training.value_bits, layout=b"").max_bytes

    if not training.error_feedback_decay:
        return [training.top_k]
    # Below CHUNK, more entries never take fewer bytes, so bisect finds how many fit.
    fewer, full = range(1, training.top_k), max_bytes(training.top_k)
    fitting = (bisect_right(fewer, full // part, key=max_bytes) for part in DIVISORS)
    return list(dict.fromkeys([training.top_k, *(max(1, top_k) for top_k in fitting)]))


def with_top_k(spec: TrainingSpec, top_k: int | None) -> TrainingSpec:
    """Return the specification of a unit with ``top_k`` entries per chunk (None: ``spec``)."""
    return spec if top_k is None else replace(spec, training=replace(spec.training, top_k=top_k))


def choose_top_k(spec: TrainingSpec, up_bytes_per_second: int | None, compute_seconds: float | None) -> int:
    """Return the entries per chunk of a node's next unit; the highest if unmeasured."""
    levels = top_k_levels(spec)
    if not up_bytes_per_second or not compute_seconds:
        return levels[0]
    room = SHARE * compute_seconds * up_bytes_per_second
    return next((top_k for top_k in levels if payload_size(with_top_k(spec, top_k)) <= room), levels[-1])


def decode_adapted(spec: TrainingSpec, payload: bytes) -> Payload:
    """Return an untrusted payload's entries, of any compression level. Raises PayloadError."""
    top_k = top_k_of(payload)
    return decode(with_top_k(spec, top_k if top_k in top_k_levels(spec) else None), payload)
