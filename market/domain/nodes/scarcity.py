"""How scarce the nodes of each kind are, judged by what jobs asked for. Pure, and in whole numbers up to the last step.

Nodes of one kind are alike to every requirement. What a job asks, its number of nodes, is spread evenly over all nodes
that could serve it, busy or free: those that it accepts, in zones and classes where as many stand as it wants together.
The sum that so falls on a node, over that on the most wanted one, is its scarcity. A node that few others can stand in
for is scarce as soon as somebody needs it; one of hundreds is not, however many jobs accept it.

The question is that of fragmentation-aware scheduling (Weng et al., "Beware of Fragmentation", USENIX ATC 2023): what
does a placement cost the jobs to come, going by the distribution of recent ones? There nodes are divided, here they are
whole, so what is lost is not the rest of a node but the node itself for those who can use no other.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import astuple, dataclass
from itertools import accumulate
from typing import Any

from market.domain.nodes.placement import Node, Requirements

RECENT = 512
"""So many of the newest asks are looked at."""


MOST_LOOKS = 2**17
"""How often a requirement is held against a make of node, at most: what no rule of the market bounds is how many makes
there are. Beyond that only the asks for most nodes count."""


_UNIT = 10**9  # of one node's demand


@dataclass(frozen=True, slots=True)
class Ask:
    """What one job asks for: ``nodes`` of one zone and class, each of which meets its requirements."""

    requirements: Requirements
    nodes: int


class _Make:
    """The nodes of one make. What a requirement accepts of it are those from some reliability on."""

    def __init__(self, nodes: Counter[int], best: Node) -> None:
        """
        Args:
            nodes: how many there are by reliability.
            best: one of the highest reliability.
        """
        self.best = best
        self.levels = sorted(nodes)
        self.standing = list(accumulate(nodes[level] for level in reversed(self.levels)))[::-1]  # from a level on
        self.wanted = [0] * len(self.levels)  # in addition to the level before


def scarcity(asks: Iterable[Ask], supply: Iterable[Node]) -> dict[Hashable, float]:
    """The scarcity of each kind of node in the supply, from 0 to 1; the sequence of either argument changes nothing."""
    makes = _makes(supply)
    for ask, times in _judged(Counter(asks), MOST_LOOKS // max(1, len(makes))):
        least = ask.requirements.min_reliability_bps
        found = [(one, bisect_left(one.levels, least)) for one in makes.values() if ask.requirements.accepts(one.best)]
        together = Counter[Hashable]()
        for one, level in found:
            together[one.best.book] += one.standing[level]
        found = [(one, level) for one, level in found if together[one.best.book] >= ask.nodes]
        able = sum(one.standing[level] for one, level in found)
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


def _judged(asks: Counter[Ask], most: int) -> list[tuple[Ask, int]]:
    """The ``most`` asks for most nodes, and how often each was made."""
    if len(asks) <= most:
        return list(asks.items())

    def order(item: tuple[Ask, int]) -> tuple[Any, ...]:
        ask, times = item
        contents = (sorted(one) if isinstance(one, frozenset) else one for one in astuple(ask.requirements))
        return -times * ask.nodes, ask.nodes, *contents

    return sorted(asks.items(), key=order)[:most]
