"""Costs of units of any size, extrapolated from payloads encoded and aggregated here.

A payload's bytes are a header and, for every chunk of 4,096 parameters, scales, signs, gaps and levels. They grow with
the parameters alone, as do the passes over vectors that compress, check and aggregate. The pseudo-gradients are those
of units of ``benchmarks.codec``'s model. The update is encoded from the mean of the decoded payloads, as in
``training_gym.aggregate.outer_step``. Seconds are process time of one core.
"""

import time
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from benchmarks.codec import pseudo_gradient
from benchmarks.report import timed
from training_gym.aggregate.aggregation import Aggregate, aggregate
from training_gym.aggregate.outer_step import OuterState
from training_gym.compress.payload_format import Format, decode_vector, encode_vector
from training_gym.model.layout import initial_parameters
from training_gym.model.tensors import Vector
from training_gym.spec.architectures import read_model
from training_gym.spec.config import CHUNK, TrainingConfig, TrainingSpec
from zoo_protocol.hashing import sha256

FEW, MANY = 2, 6
_timed = partial(timed, repetitions=9, clock=time.process_time)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that sizes depend on; with ``down_top_k`` 0 nodes fetch the whole model."""

    top_k: int
    value_bits: int
    down_top_k: int = 0
    down_value_bits: int = 4

    @classmethod
    def of(cls, training: TrainingConfig) -> "Settings":
        return cls(*(getattr(training, name) for name in cls.__slots__))


@dataclass(frozen=True, slots=True)
class Costs:
    """Bytes and seconds per parameter.

    Attributes:
        payload, update: bytes up and down; ``update`` is 0 if nodes fetch the whole model.
        encode: seconds to compress a unit's result.
        admit: seconds to check it: decode its payload, compare its first leaf with the checkpoint's parameters. Digests
            suffice for the rest of its trace's ends.
        join: seconds for one more payload in a round with a last aggregate: decode, measure, sketch and add it.
        close: seconds for the rest of ``aggregate``: the outer step and the encoding of the update.
    """

    payload: float
    update: float
    encode: float
    admit: float
    join: float
    close: float


class Samples:
    """Real pseudo-gradients, and their costs under different settings."""

    def __init__(self, quick: bool) -> None:
        self._model = (
            read_model({"hidden_size": 64, "num_hidden_layers": 2})
            if quick
            else read_model({"hidden_size": 256, "num_hidden_layers": 4})
        )
        real = [pseudo_gradient(seed, quick) for seed in range(FEW)]
        self._sizes, self._layout = real[0][1:]
        # Rolled by whole chunks they are not copies to the aggregate, and compress equally well.
        self._vectors = [np.roll(real[number % FEW][0], number * CHUNK) for number in range(MANY)]

    def costs(self, settings: Settings) -> Costs:
        """Return the costs under these settings."""
        spec = TrainingSpec(self._model, "unused", TrainingConfig(**asdict(settings)))
        size, layout = spec.num_parameters(), self._layout
        up = Format(self._sizes, settings.top_k, settings.value_bits, layout)
        payloads, encode = _timed(lambda: [encode_vector(up, vector) for vector in self._vectors])
        decoded, decode = _timed(lambda: [decode_vector(up, payload) for payload in payloads])
        hashing = _timed(lambda: sha256(self._vectors[0].tobytes()))[1]
        update = 0
        if settings.down_top_k:
            mean: Vector = np.mean([payload.dense() for payload in decoded], axis=0, dtype=np.float32)
            update = len(
                encode_vector(Format(self._sizes, settings.down_top_k, settings.down_value_bits, layout), mean)
            )
        start = initial_parameters(spec)
        # Nonzero, as after several rounds; rolled vectors have no common direction but that of their mean.
        state = OuterState(np.mean(self._vectors, axis=0, dtype=np.float32), *self._vectors[1:3])

        def aggregated(count: int) -> Aggregate:
            found = aggregate(spec, start, dict(enumerate(payloads[:count])), outer_state=state)
            assert all(verdict.included for verdict in found.verdicts.values()), "every payload must be included"
            return found

        few, many = (_timed(lambda count=count: aggregated(count))[1] for count in (FEW, MANY))  # type: ignore[misc]
        join = (many - few) / (MANY - FEW)
        return Costs(
            payload=sum(map(len, payloads)) / len(payloads) / size,
            update=update / size,
            encode=encode / MANY / size,
            admit=(decode / MANY + hashing) / size,
            join=join / size,
            close=max(0.0, few - FEW * join) / size,
        )
