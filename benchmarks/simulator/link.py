"""One direction of the link that all nodes share, at the market's storage.

Rates are max-min fair (Bertsekas and Gallager, Data Networks, 1992, 6.5.2): all flows get equal rates, up to the limit
of each node's own link. Flows are grouped by that limit. Within a group all rates are equal, so a change costs as much
as there are different limits, not flows.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from benchmarks.simulator.clock import Action, Clock, Timer


@dataclass(slots=True)
class Flow:
    """Bytes in transfer. ``ends_at``: bytes per flow of its lane at which the flow is done."""

    limit: float
    ends_at: float
    done: Action


@dataclass(slots=True)
class _Lane:
    """Flows of one limit (bytes per second); each received ``carried`` bytes since the start."""

    rate: float = 0.0
    carried: float = 0.0
    flows: int = 0
    ends: list[tuple[float, int, Flow]] = field(default_factory=list)


class SharedLink:
    """A link of ``capacity`` bytes per second; ``math.inf`` leaves every flow its own limit."""

    def __init__(self, clock: Clock, capacity: float = math.inf) -> None:
        self._clock = clock
        self._capacity = capacity
        self._lanes: dict[float, _Lane] = {}
        self._counted_until = 0.0
        self._begun = 0
        self._next: Timer | None = None

    def begin(self, size: float, limit: float, done: Callable[[], None]) -> Flow:
        """Transfer ``size`` bytes at no more than ``limit`` bytes per second, then call ``done``."""
        self._count()
        flow = self._enter(size, limit, done)
        self._share()
        return flow

    def end(self, flow: Flow) -> None:
        """Stop an unfinished flow."""
        self._count()
        self._leave(flow)
        self._share()

    def relimit(self, flow: Flow, limit: float) -> Flow:
        """Replace ``flow`` by its rest under another limit, and return that."""
        self._count()
        rest = self._leave(flow)
        changed = self._enter(rest, limit, flow.done)
        self._share()
        return changed

    def _enter(self, size: float, limit: float, done: Action) -> Flow:
        lane = self._lanes.setdefault(limit, _Lane())
        flow = Flow(limit, lane.carried + size, done)
        lane.flows += 1
        self._begun += 1
        heappush(lane.ends, (flow.ends_at, self._begun, flow))
        return flow

    def _leave(self, flow: Flow) -> float:
        lane = self._lanes[flow.limit]
        lane.flows -= 1
        rest, flow.ends_at = max(0.0, flow.ends_at - lane.carried), -1.0
        return rest

    def _count(self) -> None:
        passed = self._clock.now - self._counted_until
        self._counted_until = self._clock.now
        if passed:
            for lane in self._lanes.values():
                lane.carried += lane.rate * passed

    def _share(self) -> None:
        """Set all rates, from the lowest limit up, and schedule the end of the first flow to finish."""
        left, flows = self._capacity, sum(lane.flows for lane in self._lanes.values())
        soonest: tuple[float, _Lane] | None = None
        for limit in sorted(self._lanes):
            lane = self._lanes[limit]
            while lane.ends and lane.ends[0][2].ends_at < 0:
                heappop(lane.ends)
            if not lane.flows:
                del self._lanes[limit]
                continue
            lane.rate = min(limit, left / flows)
            left -= lane.rate * lane.flows
            flows -= lane.flows
            wait = max(0.0, lane.ends[0][0] - lane.carried) / lane.rate
            if soonest is None or wait < soonest[0]:
                soonest = wait, lane
        if self._next is not None:
            self._next.cancel()
        self._next = None
        if soonest is not None:
            wait, lane = soonest
            self._next = self._clock.after(wait, lambda: self._finish(lane))

    def _finish(self, lane: _Lane) -> None:
        self._next = None
        self._count()
        flow = heappop(lane.ends)[2]
        lane.flows -= 1
        self._share()
        flow.done()
