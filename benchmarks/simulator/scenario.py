"""Scenarios and outcomes in bytes, seconds and Mb/s; defaults are the market's settings."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from market.settings import Settings
from training_gym.exchange.round_time import Link


def _setting(name: str) -> Any:
    return Settings.model_fields[name].default


@dataclass(frozen=True, slots=True)
class Work:
    """One unit's cost at a node.

    Attributes:
        compute: seconds of the inner steps on a device of speed 1.
        encode: seconds to compress and write the result, likewise.
        payload: bytes that a unit sends.
        update: bytes from a parent's model to a checkpoint's; with 0 a node fetches the model.
        model: the model file.
        slot_state: the replica state file. It stays on its node. In parallel to training the node uploads the start
            state of a sampled unit, and the states of pinned checkpoints.
        dataset: the training split, which a node fetches before its first unit.
        state: bytes that a node sends for a sampled segment.
        segments: segments of a unit.
        outer_state: bytes that the market keeps and pins next to the model.
    """

    compute: float
    payload: float
    model: float
    slot_state: float
    encode: float = 0.0
    update: float = 0.0
    dataset: float = 0.0
    state: float = 0.0
    segments: int = 1
    outer_state: float = 0.0


@dataclass(frozen=True, slots=True)
class Nodes:
    """The job's nodes.

    Attributes:
        slots: slots of the job, and nodes that train at a time.
        spares: further nodes of the job, at the start and on average.
        links: kinds of links, with relative frequencies.
        speed_spread: standard deviation of a device's speed about 1, as a share.
        jitter: the same of each unit's time about its device's.
        straggler_share, straggler_speed: share of the devices with that other speed.
        leave_per_hour: share of all nodes that leave within an hour, without notice; as many others arrive.
        speeds: speeds of the first nodes, instead of drawn ones.
        departures: fixed times at which the holder of a slot leaves, by slot, in addition to drawn ones.
    """

    slots: int
    spares: int = 0
    links: Mapping[Link, float] = field(default_factory=lambda: {Link(): 1.0})
    speed_spread: float = 0.0
    jitter: float = 0.0
    straggler_share: float = 0.0
    straggler_speed: float = 0.25
    leave_per_hour: float = 0.0
    speeds: tuple[float, ...] = ()
    departures: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Market:
    """Settings of the market.

    Attributes:
        up_mbps, down_mbps: link of its storage, which all transfers use: from the nodes, to the nodes.
        requests_before, requests_after: a unit's round trips without a file: for its lease and the checkpoint's
            manifest; for its commitment and its completion. Each file takes one more.
        files_kept: seconds after its last use at which a node removes a model or dataset.
        admit: seconds to check one delivered unit, before its node gets the answer.
        join: seconds to decode and sum one payload when the round closes.
        close: seconds of the rest of closing: outer step, storing the checkpoint.
        leaf, workers: a round is aggregated in parts of at most ``leaf`` payloads by this many processes; with 0 in
            one part.
        merge: seconds to add two parts.
        spares_follow: whether hot spares prefetch (``market.training.matching.spares``).
        sampling: share of all segments that is sampled for verification.
        pins, pin_interval: number of nodes that fetch every n-th checkpoint with all its files; 0 disables it.
    """

    up_mbps: float = math.inf
    down_mbps: float = math.inf
    requests_before: int = 2
    requests_after: int = 2
    files_kept: float = 3600.0
    admit: float = 0.0
    join: float = 0.0
    close: float = 0.0
    leaf: int = 0
    workers: int = 1
    merge: float = 0.0
    spares_follow: bool = True
    sampling: float = 0.0
    pins: int = 0
    pin_interval: int = 1
    lease_seconds: float = _setting("lease_seconds")
    sweep_seconds: float = _setting("sweep_interval_seconds")
    round_deadline_seconds: float = _setting("round_deadline_seconds")
    round_grace_seconds: float = _setting("round_grace_seconds")
    upload_seconds: float = _setting("inclusion_deadline_seconds") / 2

    def joining_seconds(self, payloads: int) -> float:
        """Return the seconds from a closed round to its checkpoint: parts, then pairwise merges."""
        if not self.leaf:
            return self.join * payloads + self.close
        parts = -(-payloads // self.leaf)
        batches = -(-parts // self.workers)
        merges = math.ceil(math.log2(parts)) if parts > 1 else 0
        return batches * self.leaf * self.join + merges * self.merge + self.close


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run of ``rounds`` rounds; the figures exclude the first ``unmeasured``.

    ``round_delay`` is the job's setting.
    """

    work: Work
    nodes: Nodes
    market: Market = field(default_factory=Market)
    rounds: int = 10
    unmeasured: int = 1
    seed: int = 0
    round_delay: int = 0


@dataclass(frozen=True, slots=True)
class Round:
    """One round: times of opening, end and checkpoint, and the outcomes of its units."""

    opened_at: float
    closed_at: float
    joined_at: float
    included: int
    lost: int
    stragglers: int

    @property
    def seconds(self) -> float:
        """Seconds from its opening to the next round's."""
        return self.joined_at - self.opened_at


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a run.

    Attributes:
        rounds: the measured rounds, see :class:`Scenario`.
        efficiency: useful compute (of units that entered a checkpoint) as a share of the slots' devices' full compute.
        failed: True if the market gave the job up (``no_capacity``).
        unserved: parallel tasks (reveals, pins) that nodes had not finished at the end.
        events: simulated actions; ``simulated``: seconds of virtual time.
    """

    rounds: list[Round]
    efficiency: float
    failed: bool
    unserved: int
    events: int
    simulated: float
