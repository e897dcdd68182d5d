"""What is simulated. Sizes in bytes, times in seconds, links in Mb/s; the market's own settings are the defaults."""

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
    """One unit, as a node does it.

    Attributes:
        compute: of the inner steps on a device of speed 1.
        encode: of compressing and writing the result, likewise.
        payload: what a unit sends.
        update: what a node fetches of a checkpoint whose parent's model it has; 0 has it fetch the model.
        model: the model file.
        slot_state: the slot state file, which stays on its node; beside the training the node sends the one that a
            drawn unit started from, and those that checkpoints to be pinned name.
        dataset: the training split, which a node fetches before its first unit.
        state: what a node sends of a segment that was drawn for verification.
        segments: of a unit.
        outer_state: what the market keeps beside the model, and has pinned with it.
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
    """Who trains.

    Attributes:
        slots: of the job: so many nodes train at a time.
        spares: further nodes that the job may have, at the start and on the mean.
        links: the kinds of links, and how many of a node's kind there are for each of the others.
        speed_spread: standard deviation of a device's speed about 1, as a share.
        jitter: the same of each unit's time about its device's.
        straggler_share, straggler_speed: so many of the devices have that speed instead.
        leave_per_hour: share of all nodes that leave within an hour, without a word; as many others come.
        speeds: of the first nodes, instead of drawn ones.
        departures: times at which the holder of a slot leaves, by slot, beside those that are drawn.
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
    """The market's side.

    Attributes:
        up_mbps, down_mbps: of its storage's link, over which everything goes: from the nodes, to the nodes.
        requests_before, requests_after: round trips of a unit that carry no file: for its lease and the checkpoint's
            manifest; for its commitment and its completion. Each file takes one more.
        files_kept: a model or dataset that was not asked for in so long is removed from the node.
        admit: checking one delivered unit, before its node is told.
        join: decoding and summing one payload when the round closes.
        close: the rest of closing: outer step, storing the checkpoint.
        leaf, workers: a round is joined in parts of at most ``leaf`` payloads by so many processes at once; without
            a ``leaf`` in one.
        merge: adding up two parts.
        spares_follow: whether it has spares follow the job (``market.training.matching.spares``).
        sampling: share of all segments that is drawn for verification.
        pins, pin_interval: so many nodes fetch every so manyth checkpoint with all its files; 0 is none.
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
        """From a closed round to its next checkpoint: parts one after another per process, then pairwise merges."""
        if not self.leaf:
            return self.join * payloads + self.close
        parts = -(-payloads // self.leaf)
        turns = -(-parts // self.workers)
        merges = math.ceil(math.log2(parts)) if parts > 1 else 0
        return turns * self.leaf * self.join + merges * self.merge + self.close


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run: so many rounds. In the first ``unmeasured`` model and data are fetched; the figures leave them out.

    ``round_delay`` is the job's setting.
    """

    work: Work
    nodes: Nodes
    market: Market = field(default_factory=Market)
    rounds: int = 10
    unmeasured: int = 1
    seed: int = 0
    round_delay: int = 0
