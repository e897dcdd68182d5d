"""A node's work, step by step, in the order of ``zoo_compute.node.work.worker``."""

from random import Random

from benchmarks.simulator.clock import Clock
from benchmarks.simulator.node import Node, Step, Steps
from benchmarks.simulator.scenario import Scenario
from benchmarks.simulator.state import Slot
from zoo_compute.node.work.inputs import max_updates

MIN_SPEED = 0.05
"""Minimum of a device's speed, and of a unit's speed relative to its device."""


class NodeWork:
    """The steps of the nodes of one scenario."""

    def __init__(self, scenario: Scenario, clock: Clock, random: Random) -> None:
        self._scenario = scenario
        self._clock = clock
        self._random = random

    def training(self, node: Node, checkpoint: int) -> Steps:
        """Yield one unit: inputs from the model of round ``checkpoint``, training, commitment."""
        work, market = self._scenario.work, self._scenario.market
        yield Step.WAIT, market.requests_before * node.link.round_trip_seconds
        yield from self._inputs(node, checkpoint)
        jitter = max(MIN_SPEED, self._random.gauss(1.0, self._scenario.nodes.jitter))
        yield Step.WAIT, (work.compute * jitter + work.encode) / node.speed
        yield Step.WAIT, bool(market.requests_after) * node.link.round_trip_seconds

    def delivery(self, node: Node) -> Steps:
        """Yield a unit's upload and completion."""
        market, trip = self._scenario.market, node.link.round_trip_seconds
        yield Step.WAIT, trip
        yield Step.UP, self._scenario.work.payload
        yield Step.WAIT, max(0, market.requests_after - 1) * trip + market.admit

    def following(self, node: Node, round_: int) -> Steps:
        """Yield the prefetch of a hot spare."""
        yield Step.WAIT, self._scenario.market.requests_before * node.link.round_trip_seconds
        yield from self._inputs(node, round_)
        node.follows = True

    def reveals(self, *, with_slot_state: bool) -> list[Steps]:
        """Return the uploads for a unit's sampled segments; the first one starts from public data."""
        work = self._scenario.work
        wanted = work.segments * self._scenario.market.sampling
        count = int(wanted) + (self._random.random() < wanted % 1)
        drawn = [self._random.randrange(work.segments) for _ in range(count)]
        uploads: list[Steps] = [iter([(Step.UP, work.state)]) for segment in drawn if segment > 0]
        if drawn and with_slot_state:
            uploads.append(iter([(Step.PUBLISH, work.slot_state)]))
        return uploads

    def pinning(self, slot: Slot) -> Steps:
        """Yield the upload of a slot's state, for a checkpoint that is kept."""
        yield Step.PUBLISH, self._scenario.work.slot_state
        slot.uploading = None

    def _inputs(self, node: Node, round_: int) -> Steps:
        work, trip = self._scenario.work, node.link.round_trip_seconds
        requests, size = self._model_fetch(node, round_)
        yield Step.WAIT, requests * trip
        yield Step.DOWN, size
        node.model_round, node.model_used_at = max(round_, node.model_round or 0), self._clock.now
        if not self._keeps(node.dataset_used_at) and work.dataset:
            yield Step.WAIT, trip
            yield Step.DOWN, work.dataset
        node.dataset_used_at = self._clock.now

    def _model_fetch(self, node: Node, round_: int) -> tuple[int, float]:
        """Return (requests, bytes) until a node has a round's model: none, updates, or all of it."""
        if node.model_round is None or not self._keeps(node.model_used_at):
            return 1, self._scenario.work.model
        missing = round_ - node.model_round
        if missing <= 0:
            return 0, 0.0
        work = self._scenario.work
        most = max_updates(work.model, work.update) if work.update else 0
        if missing <= most:
            return 2 * missing - 1, missing * work.update  # including the manifests that name earlier ones
        return most + 1, work.model  # after reading that many manifests

    def _keeps(self, used_at: float | None) -> bool:
        return used_at is not None and self._clock.now - used_at <= self._scenario.market.files_kept
