"""Messages between the aggregators of a tree: measurements first, then sums. No torch.

A leaf measures its payloads and sends a :class:`Summary`, a few kilobytes per payload. All leaves reach the same
decision from all summaries. Each leaf then sums its included payloads, and the root adds the sums.
"""

import base64
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from training_gym.aggregate.aggregation import PartialSum, measure, merge, sum_included
from training_gym.aggregate.robust import Decision, Measurement, Verdict, decide
from training_gym.model.tensors import Vector
from training_gym.spec.config import TrainingSpec

_WEIGHTS = struct.Struct("<qq")
_RULES = 2
"""Version of summaries and of the rules that decide from them. Raise it with every change of either."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Measurements of admitted payloads and verdicts of refused ones, by slot."""

    measurements: dict[int, Measurement]
    refused: dict[int, Verdict]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; integers as decimal strings, sketches as base64 of int64."""
        return {
            "rules": _RULES,
            "measurements": {
                str(slot): [
                    str(item.squared_norm),
                    str(item.squared_distance),
                    str(item.product),
                    base64.b64encode(item.sketch.astype("<i8").tobytes()).decode(),
                    item.weight,
                    item.top_k,
                ]
                for slot, item in self.measurements.items()
            },
            "refused": {str(slot): [verdict.code, verdict.message] for slot, verdict in self.refused.items()},
        }

    @staticmethod
    def is_of_these_rules(document: Mapping[str, Any]) -> bool:
        """Return False for an object of another release, which may decide otherwise."""
        return document.get("rules") == _RULES

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Summary":
        """Return the summary in an object of :meth:`to_json`, of these rules."""
        return cls(
            {
                int(slot): Measurement(
                    int(norm),
                    int(distance),
                    int(product),
                    np.frombuffer(base64.b64decode(sketch), "<i8"),
                    weight,
                    top_k,
                )
                for slot, (norm, distance, product, sketch, weight, top_k) in document["measurements"].items()
            },
            {int(slot): Verdict(False, code, message) for slot, (code, message) in document["refused"].items()},
        )


def summarise(
    spec: TrainingSpec, payloads: Mapping[int, bytes], weights: Mapping[int, int], last: Vector, seed: bytes
) -> Summary:
    """Return a leaf's summary of ``payloads`` against ``last``; leaves share ``seed``."""
    return Summary(*measure(spec, payloads, weights, last, seed))


def decide_together(summaries: Iterable[Summary]) -> Decision:
    """Return the decision over all leaves' ``summaries``, refused payloads included."""
    measurements: dict[int, Measurement] = {}
    refused: dict[int, Verdict] = {}
    for summary in summaries:
        measurements |= summary.measurements
        refused |= summary.refused
    decision = decide(measurements)
    return replace(decision, verdicts=decision.verdicts | refused)


def leaf_sum(spec: TrainingSpec, payloads: Mapping[int, bytes], decision: Decision) -> PartialSum:
    """Return the sum over a leaf's included ``payloads``."""
    return sum_included(spec, payloads, decision.factors, decision.weights)


def merge_all(sums: Iterable[PartialSum]) -> PartialSum:
    """Return the sum over all leaves, at least one, in any order."""
    return reduce(merge, sums)


def save_sum(part: PartialSum) -> bytes:
    """Return weight, pull and the totals, all little-endian int64."""
    return b"".join(sum_pieces(part))


def sum_pieces(part: PartialSum) -> list[bytes | memoryview]:
    """Return the bytes of :func:`save_sum`, the totals without a copy."""
    return [_WEIGHTS.pack(part.weight, part.pull), part.total.astype("<i8", copy=False).view(np.uint8).data]


def load_sum(data: bytes | bytearray) -> PartialSum:
    """Return the sum in a file of :func:`save_sum`."""
    weight, pull = _WEIGHTS.unpack_from(data)
    return PartialSum(np.frombuffer(data, "<i8", offset=_WEIGHTS.size), weight, pull)


def sum_bytes(spec: TrainingSpec) -> int:
    """Return the size in bytes of a file of :func:`save_sum`."""
    return _WEIGHTS.size + 8 * spec.num_parameters()
