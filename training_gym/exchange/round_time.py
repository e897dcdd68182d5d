"""How long a round of a job takes over slow links, and how much of that is compute: an estimate in closed form.

It is of nodes that are alike, stay, and are waited for, after the first rounds (in which they fetch model and data).
``benchmarks/trials.md`` says how near it comes to the simulation of the market's own rules. No torch.
"""

from dataclasses import dataclass

from training_gym.compress.link_adaptation import choose_top_k, with_top_k
from training_gym.compress.payload_format import Format, payload_size
from training_gym.spec.config import TrainingSpec

MBIT = 1e6 / 8
"""Bytes per second of a link of one Mb/s."""


ENCODE, CHECK, JOIN, CLOSE = 3e-9, 4e-9, 2.5e-9, 14e-9
"""Seconds of one core, as measured with ``benchmarks.simulator.measured``: compressing a result and checking it (per
parameter), measuring a payload and adding it to the round's sum (per bit of it), and what else a round's closing takes
(per parameter: the outer step, and encoding what it sends down). Four cores' worth of joining is taken to be done by
one."""


TRIPS_BEFORE, TRIPS_AFTER = 3, 3
"""Round trips of a unit: lease, manifest and update before its steps; upload and completion after its commitment."""


@dataclass(frozen=True, slots=True)
class Link:
    """A node's link to the market's storage, in 10**6 bits per second; as it is, a good home connection."""

    down_mbps: float = 100.0
    up_mbps: float = 20.0
    round_trip_seconds: float = 0.08


REFERENCE_LINK = Link()


@dataclass(frozen=True, slots=True)
class RoundTime:
    """One round, in seconds; ``up_bytes`` and ``down_bytes`` are what each node moves for it, at most.

    Attributes:
        compute: of the inner steps.
        node: what a unit takes until it is committed: fetching, compute, compressing.
        rest: from there to the next checkpoint: upload, checking, joining.
        closing: the market's part of ``rest``, which no other round's overlaps with.
        overlapped: whether nodes go on with the next unit meanwhile (``round_delay``).
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
        """From one checkpoint to the next.

        An overlapped unit begins when the one before it is committed and the checkpoint of the round before that is
        there, so two rounds take at least one unit and its rest, and one at least its closing.
        """
        if not self.overlapped:
            return self.node + self.rest
        return max(self.node, (self.node + self.rest) / 2, self.closing)

    @property
    def share(self) -> float:
        """Of the throughput that the same nodes would have if they neither moved nor waited for anything."""
        return self.compute / self.seconds


def round_time(spec: TrainingSpec, nodes: int, compute_seconds: float, link: Link = REFERENCE_LINK) -> RoundTime:
    """A round of ``nodes`` units that take ``compute_seconds`` of inner steps each.

    Payloads are as large as they may be, at the ``top_k`` that the market tells nodes of such a link
    (``training_gym.compress.link_adaptation``); they are 4 to 5 % smaller at 2 bits where not all entries are sent.
    """
    size, training = spec.num_parameters(), spec.training
    sent = with_top_k(spec, choose_top_k(spec, round(link.up_mbps * MBIT), compute_seconds))
    up = payload_size(sent)
    down = 4 * size
    if training.down_top_k:
        down = Format(size, training.down_top_k, training.down_value_bits, layout=b"").max_bytes
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
