"""How scarce the nodes of each kind are, judged by what jobs asked for. Pure, and in whole numbers up to the last step.

Nodes of one kind are alike to every requirement. What a job asks, its number of nodes, is spread evenly over all nodes
that could serve it, busy or free: those that it accepts, in zones and classes where as many stand as it wants together.
The sum that so falls on a node, over that on the most wanted one, is its scarcity. A node that few others can stand in
for is scarce as soon as somebody needs it; one of hundreds is not, however many jobs accept it.

The question is that of fragmentation-aware scheduling (Weng et al., "Beware of Fragmentation", USENIX ATC 2023): what
does a placement cost the jobs to come, going by the distribution of recent ones? There nodes are divided, here they are
whole, so what is lost is not the rest of a node but the node itself for those who can use no other.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from market.domain.placement import Node, Requirements

RECENT = 512
"""So many of the newest asks are looked at."""

_UNIT = 10**9  # of one node's demand


@dataclass(frozen=True, slots=True)
class Ask:
    """What one job asks for: ``nodes`` of one zone and class, each of which meets its requirements."""

    requirements: Requirements
    nodes: int


def scarcity(asks: Iterable[Ask], supply: Iterable[Node]) -> dict[Hashable, float]:
    """The scarcity of each kind of node in the supply, from 0 to 1; the sequence of either argument changes nothing."""
    counts, samples = Counter[Hashable](), dict[Hashable, Node]()
    for node in supply:
        counts[node.kind] += 1
        samples.setdefault(node.kind, node)
    wanted = Counter[Hashable]()
    for ask, times in Counter(asks).items():
        kinds = [kind for kind, sample in samples.items() if ask.requirements.accepts(sample)]
        together = Counter[Hashable]()
        for kind in kinds:
            together[samples[kind].book] += counts[kind]
        kinds = [kind for kind in kinds if together[samples[kind].book] >= ask.nodes]
        able = sum(counts[kind] for kind in kinds)
        for kind in kinds:
            wanted[kind] += times * ask.nodes * _UNIT // able
    most = max(wanted.values(), default=0)
    return {kind: wanted[kind] / most if most else 0.0 for kind in counts}
