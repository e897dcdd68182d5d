"""What units of another size cost, from real ones: payloads are encoded and joined here, and extrapolated by parameter.

A payload's bytes are a header and, for every chunk of 4,096 parameters, scales, signs, gaps and levels, so they grow
with the parameters alone; so do the passes over vectors that compress, check and join. The pseudo-gradients are what
units of ``benchmarks.codec``'s model have learned. The way down is encoded from the mean of the decoded payloads, as
``training_gym.aggregate.outer_step`` does. Seconds are of one core of the machine that measures (process time).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from benchmarks.codec import pseudo_gradient
from training_gym.aggregate.aggregation import Aggregate, aggregate
from training_gym.aggregate.outer_step import OuterState
from training_gym.compress.payload_format import Format, decode_vector, encode_vector
from training_gym.model.layout import initial_parameters
from training_gym.model.tensors import Vector
from training_gym.spec.config import CHUNK, ModelConfig, TrainingConfig, TrainingSpec
from zoo_protocol.hashing import sha256

FEW, MANY = 2, 6
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that sizes depend on; ``down_top_k`` 0 sends the whole model down."""

    top_k: int
    bits: int
    down_top_k: int = 0
    down_bits: int = 4

    @classmethod
    def of(cls, training: TrainingConfig) -> "Settings":
        return cls(training.top_k, training.value_bits, training.down_top_k, training.down_value_bits)


@dataclass(frozen=True, slots=True)
class Costs:
    """Bytes and seconds per parameter.

    Attributes:
        payload, update: bytes up, and down; ``update`` is 0 where the whole model goes down.
        encode: seconds of compressing a unit's result.
        admit: of checking it: its payload decodes, and its first leaf is of the checkpoint's parameters. What else the
            ends of its trace are of is known by digests.
        join: of one payload more in a round that has a last aggregate: it is decoded, measured, sketched and added.
        close: of the rest of ``aggregate``, the outer step and encoding the update in it.
    """

    payload: float
    update: float
    encode: float
    admit: float
    join: float
    close: float


class Samples:
    """Real pseudo-gradients, and what they cost under different settings."""

    def __init__(self, quick: bool) -> None:
        self._model = ModelConfig(hidden_size=64, num_layers=2) if quick else ModelConfig(hidden_size=256, num_layers=4)
        real = [pseudo_gradient(seed, quick) for seed in range(FEW)]
        self._layout = real[0][1]
        # Moved by whole chunks they are others to the aggregate, which leaves out copies, and as hard to compress.
        self._learned = [np.roll(real[number % FEW][0], number * CHUNK) for number in range(MANY)]

    def costs(self, settings: Settings) -> Costs:
        """Of these settings."""
        training = TrainingConfig(
            top_k=settings.top_k,
            value_bits=settings.bits,
            down_top_k=settings.down_top_k,
            down_value_bits=settings.down_bits,
        )
        spec = TrainingSpec(self._model, "unused", training)
        size, layout = spec.num_parameters(), self._layout
        up = Format(size, settings.top_k, settings.bits, layout)
        payloads, encode = _timed(lambda: [encode_vector(up, vector) for vector in self._learned])
        decoded, decode = _timed(lambda: [decode_vector(up, payload) for payload in payloads])
        hashing = _timed(lambda: sha256(self._learned[0].tobytes()))[1]
        update = 0
        if settings.down_top_k:
            mean: Vector = np.mean([payload.dense() for payload in decoded], axis=0, dtype=np.float32)
            update = len(encode_vector(Format(size, settings.down_top_k, settings.down_bits, layout), mean))
        start = initial_parameters(self._model, 0)
        state = OuterState(*self._learned[:3])  # as after some rounds: nothing in it is zero

        def joined(count: int) -> Aggregate:
            found = aggregate(spec, start, dict(enumerate(payloads[:count])), outer_state=state)
            assert all(verdict.included for verdict in found.verdicts.values()), "only what counts is added"
            return found

        few, many = (_timed(lambda count=count: joined(count))[1] for count in (FEW, MANY))  # type: ignore[misc]
        join = (many - few) / (MANY - FEW)
        return Costs(
            payload=sum(map(len, payloads)) / len(payloads) / size,
            update=update / size,
            encode=encode / MANY / size,
            admit=(decode / MANY + hashing) / size,
            join=join / size,
            close=max(0.0, few - FEW * join) / size,
        )


def _timed(work: Callable[[], _T]) -> tuple[_T, float]:
    """The result, and the least processor time of nine runs: differences of two are taken."""
    seconds = []
    for _ in range(9):
        started = time.process_time()
        result = work()
        seconds.append(time.process_time() - started)
    return result, min(seconds)
