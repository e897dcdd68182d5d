"""Closed-form estimate of a round's duration over slow links, and of its compute share.

The estimate assumes equal nodes that stay and that the round waits for, after the first rounds (which fetch model and
data). ``benchmarks/trials.md`` compares it with the simulation of the market's rules. No torch.
"""

from dataclasses import dataclass

from training_gym.compress.link_adaptation import choose_top_k, with_top_k
from training_gym.compress.payload_format import Format, payload_size
from training_gym.model.layout import parameter_sizes
from training_gym.spec.config import TrainingSpec

MBIT = 1e6 / 8
"""Bytes per second of a link of one Mb/s."""
ENCODE, CHECK, JOIN, CLOSE = 3e-9, 4e-9, 2.5e-9, 14e-9
"""Seconds of one core, measured with ``benchmarks.simulator.measured``.

- ``ENCODE``, ``CHECK``, per parameter: compress a result; check it.
- ``JOIN``, per payload bit: measure a payload and add it to the round's sum. One core does the work of four.
- ``CLOSE``, per parameter: the outer step and the encoding of the update.
"""
TRIPS_BEFORE, TRIPS_AFTER = 3, 3
"""Round trips of a unit: lease, manifest and update before its steps; upload and completion after its commitment."""


@dataclass(frozen=True, slots=True)
class Link:
    """Link of a node to storage, in Mb/s; the defaults are a good home connection."""

    down_mbps: float = 100.0
    up_mbps: float = 20.0
    round_trip_seconds: float = 0.08


REFERENCE_LINK = Link()


@dataclass(frozen=True, slots=True)
class RoundTime:
    """One round, in seconds; ``up_bytes`` and ``down_bytes`` are the most that a node transfers.

    Attributes:
        compute: duration of the inner steps.
        node: from a unit's start to its commitment: fetch, compute, compress.
        rest: from there to the next checkpoint: upload, check, aggregate.
        closing: the market's part of ``rest``, which never overlaps with another round's.
        overlapped: whether nodes continue with the next unit during ``rest`` (``round_delay``).
    """

    compute: float
    node: float
    rest: float
    closing: float
    overlapped: bool
    up_bytes: int
    down_bytes: int

    @property
    def seconds(self) -> float:
        """Seconds from one checkpoint to the next.

        An overlapped unit begins once the previous unit is committed and the checkpoint before it exists. Two rounds
        therefore take at least one unit and its rest; one round takes at least its closing.
        """
        if not self.overlapped:
            return self.node + self.rest
        return max(self.node, (self.node + self.rest) / 2, self.closing)

    @property
    def share(self) -> float:
        """Throughput as a share of that of the same nodes without transfers and waiting."""
        return self.compute / self.seconds


def round_time(spec: TrainingSpec, nodes: int, compute_seconds: float, link: Link = REFERENCE_LINK) -> RoundTime:
    """Estimate a round of ``nodes`` units with ``compute_seconds`` of inner steps each.

    Payloads have their maximum size at the ``top_k`` that the market assigns to such a link
    (``training_gym.compress.link_adaptation``). At 2 bits they are 4 to 5 % smaller unless all entries are sent.
    """
    size, training = spec.num_parameters(), spec.training
    sent = with_top_k(spec, choose_top_k(spec, round(link.up_mbps * MBIT), compute_seconds))
    up = payload_size(sent)
    down = 4 * size
    if training.down_top_k:
        down = Format(parameter_sizes(spec), training.down_top_k, training.down_value_bits, layout=b"").max_bytes
    trip = link.round_trip_seconds
    fetching = TRIPS_BEFORE * trip + down / (link.down_mbps * MBIT)
    closing = nodes * 8 * up * JOIN + size * CLOSE
    return RoundTime(
        compute=compute_seconds,
        node=fetching + compute_seconds + size * ENCODE + trip,  # the commitment
        rest=up / (link.up_mbps * MBIT) + TRIPS_AFTER * trip + size * CHECK + closing,
        closing=closing,
        overlapped=bool(training.round_delay),
        up_bytes=up,
        down_bytes=down,
    )
