"""Memory of an aggregation, before it runs. No torch."""

from training_gym.aggregate.aggregation import payloads_per_batch
from training_gym.compress.payload_format import decoded_bytes, payload_size, uplink
from training_gym.spec.config import CHUNK, TrainingSpec

COPIES = 7
"""Copies of the trained parameters at the peak: the four inputs, an int64 sum, and what decoding holds in passing."""
_LEVEL_BYTES = 20
"""Bytes of one level of a chunk: its magnitude, its count and its share of the sum."""


def aggregation_memory_bytes(spec: TrainingSpec, payloads: int) -> int:
    """Return the peak bytes of aggregating this number of payloads in one place.

    It leaves out the process's libraries. It adds the payloads' files and one decoded batch to the copies of the model.
    """
    format_ = uplink(spec)
    levels = (spec.num_parameters() // CHUNK + len(format_.sizes)) << (format_.bits - 1)
    decoded = decoded_bytes(format_) + _LEVEL_BYTES * levels
    files = payloads * payload_size(spec)
    return COPIES * 4 * spec.num_parameters() + files + min(payloads, payloads_per_batch(spec)) * decoded
