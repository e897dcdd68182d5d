"""Payloads of real pseudo-gradients: speed on a core, size relative to the entropy bound.

``python -m benchmarks.codec --json``. The pseudo-gradient is that of one unit of a 3.3-million-parameter byte model on
the standard library's sources. Speeds are GB of fp32 input per second of this process, including the selection of the
largest entries and all checks.

The bound has log2 C(n, k) bits for the indices of k of a chunk's n values. Each sign takes one bit. It
adds the order-0 entropy of the sent levels, and 32 bits of scales per chunk.
"""

import math
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from benchmarks.report import Row, row, run
from benchmarks.training.corpus import standard_library
from benchmarks.training.trainers import train_unit
from training_gym.compress.codes import LEVEL
from training_gym.compress.payload_format import Format, decode, decode_vector, encode_vector, layout_digest
from training_gym.compress.quantise import quantise
from training_gym.model.layout import initial_parameters, parameter_sizes
from training_gym.model.tensors import Vector
from training_gym.spec.architectures import read_model
from training_gym.spec.config import CHUNK, TrainingConfig, TrainingSpec
from training_gym.units.replica_state import fresh_slot_state

SETTINGS = [(CHUNK, 2), (960, 2), (1024, 2), (1024, 4), (1024, 8), (512, 2), (256, 2), (64, 2), (4096, 8)]
"""(entries per 4096, bits); the first is a training specification's default, and its rows have no suffix."""
_UNITS = {"encode_gb_s": "GB/s", "decode_gb_s": "GB/s", "bits_per_parameter": "bits", "entropy_excess": "share"}


def pseudo_gradient(seed: int, quick: bool) -> tuple[Vector, tuple[int, ...], bytes]:
    """Return the pseudo-gradient of one unit, its tensors' sizes, and its layout digest."""
    model = (
        read_model({"hidden_size": 64, "num_hidden_layers": 2})
        if quick
        else read_model({"hidden_size": 256, "num_hidden_layers": 4})
    )
    training = TrainingConfig(inner_steps=4 if quick else 16, segment_steps=4, batch_size=8, top_k=1, seed=seed)
    spec = TrainingSpec(model, "unused", training)
    train, _ = standard_library(1 << 20)
    start = initial_parameters(spec)
    payload, state = train_unit(spec, 0, seed, start, train, fresh_slot_state(spec))
    return state.error_feedback + decode(spec, payload).dense(), parameter_sizes(spec), layout_digest(spec)


def entropy_bound(vector: Vector, format_: Format) -> float:
    """Return the minimum bits of the payload of ``vector``."""
    chunks = format_.chunks
    sent = quantise(vector, chunks, format_.bits)
    lengths, chosen = np.diff(chunks.starts).tolist(), np.diff(chunks.entries).tolist()
    index_bits = math.fsum(_log2_choose(*pair) for pair in zip(lengths, chosen, strict=True))
    shares = np.bincount(sent.codes & LEVEL) / len(sent.codes)
    level_entropy = -math.fsum(share * math.log2(share) for share in shares.tolist() if share)
    return index_bits + len(sent.codes) * (1 + level_entropy) + 32 * len(chunks)


def _log2_choose(total: int, chosen: int) -> float:
    return (math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)) / math.log(2)


def measure(quick: bool) -> list[Row]:
    """Return the rows, over three seeds."""
    torch.set_num_threads(1)
    inputs = [pseudo_gradient(seed, quick) for seed in range(1 if quick else 3)]
    rows = []
    for number, (top_k, bits) in enumerate(SETTINGS):
        seen: dict[str, list[float]] = {name: [] for name in _UNITS}
        for vector, sizes, layout in inputs:
            format_ = Format(sizes, top_k, bits, layout)
            payload = encode_vector(format_, vector)
            seen["encode_gb_s"].append(_speed(vector, partial(encode_vector, format_, vector)))
            seen["decode_gb_s"].append(_speed(vector, partial(decode_vector, format_, payload)))
            seen["bits_per_parameter"].append(8 * len(payload) / len(vector))
            seen["entropy_excess"].append(8 * len(payload) / entropy_bound(vector, format_) - 1)
        suffix = f"_k{top_k}_b{bits}" if number else ""
        note = f"{top_k} of {CHUNK} entries, {bits} bits"
        rows += [row(name + suffix, _UNITS[name], values, note) for name, values in seen.items()]
    return rows


def _speed(vector: Vector, work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(5):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return vector.nbytes / statistics.median(seconds) / 1e9


if __name__ == "__main__":
    run("codec", measure)
