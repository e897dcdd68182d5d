"""Scarcity of each kind of node, from recent demand. Pure; integers up to the last step.

Requirements accept all nodes of a kind or none. The demand of a job, its number of nodes, is divided evenly over all
nodes that can serve it, busy or free. These are the accepted nodes of zones and classes with enough of them for the
gang. A node's scarcity is its sum of demand over the largest sum of any node.

It estimates the cost of a placement for later jobs, as fragmentation-aware scheduling does (Weng et al., "Beware of
Fragmentation", USENIX ATC 2023). Here nodes are not divided, so a placement costs later jobs the whole node.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import astuple, dataclass
from itertools import accumulate
from typing import Any

from market.domain.nodes.placement import Node, Requirements

RECENT = 512
"""Number of the newest demands that count."""

MAX_CHECKS = 2**17
"""Maximum number of tests of a requirement against a make, since the number of makes has no bound. Beyond it, only the
demands for most nodes count."""

_UNIT = 10**9  # demand of one node


@dataclass(frozen=True, slots=True)
class Ask:
    """Demand of one job: ``nodes`` of one zone and class, each within its requirements."""

    requirements: Requirements
    nodes: int


class _Make:
    """Nodes of one make by reliability; a requirement accepts those from some value up."""

    def __init__(self, nodes: Counter[int], best: Node) -> None:
        self.best = best  # a node of the highest reliability
        self.levels = sorted(nodes)
        self.counts = list(accumulate(nodes[level] for level in reversed(self.levels)))[::-1]  # from a level up
        self.wanted = [0] * len(self.levels)  # in addition to the level below


def scarcity(asks: Iterable[Ask], supply: Iterable[Node]) -> dict[Hashable, float]:
    """Return the scarcity of each supplied kind of node, from 0 to 1; order does not matter."""
    makes = _makes(supply)
    for ask, times in _largest(Counter(asks), MAX_CHECKS // max(1, len(makes))):
        least = ask.requirements.min_reliability_bps
        found = [(one, bisect_left(one.levels, least)) for one in makes.values() if ask.requirements.accepts(one.best)]
        together = Counter[Hashable]()
        for one, level in found:
            together[one.best.book] += one.counts[level]
        found = [(one, level) for one, level in found if together[one.best.book] >= ask.nodes]
        able = sum(one.counts[level] for one, level in found)
        for one, level in found:
            one.wanted[level] += times * ask.nodes * _UNIT // able
    wanted = {
        (make, level): demand
        for make, one in makes.items()
        for level, demand in zip(one.levels, accumulate(one.wanted), strict=True)
    }
    most = max(wanted.values(), default=0)
    return {kind: demand / most if most else 0.0 for kind, demand in wanted.items()}


def _makes(supply: Iterable[Node]) -> dict[Hashable, _Make]:
    counts, best = dict[Hashable, Counter[int]](), dict[Hashable, Node]()
    for node in supply:
        counts.setdefault(node.make, Counter())[node.reliability_bps] += 1
        if node.reliability_bps >= best.setdefault(node.make, node).reliability_bps:
            best[node.make] = node
    return {make: _Make(nodes, best[make]) for make, nodes in counts.items()}


def _largest(asks: Counter[Ask], most: int) -> list[tuple[Ask, int]]:
    if len(asks) <= most:
        return list(asks.items())

    def order(item: tuple[Ask, int]) -> tuple[Any, ...]:
        ask, times = item
        contents = (sorted(one) if isinstance(one, frozenset) else one for one in astuple(ask.requirements))
        return -times * ask.nodes, ask.nodes, *contents

    return sorted(asks.items(), key=order)[:most]
