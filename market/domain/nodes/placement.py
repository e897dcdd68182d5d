"""Which nodes a job accepts, and which of those together serve it best. Pure.

Requirements are limits: a node that breaks one is never placed. Among nodes that break none, a gang is better the lower
its cost, a weighted sum of five terms. Each is a share from 0 to 1 for every node, summed over the gang's nodes:

===========  ======  ===========================================================================================
term         weight  share
===========  ======  ===========================================================================================
price             3  the node's ask over the price that the job pays
locality          2  of the job's data (dataset and newest checkpoint), what the node does not hold yet
topology          3  the slowest round trip in the gang over ``SLOW_MS``; it counts for all, since a round ends with
                     its slowest node
spread            2  of the gang's other nodes, those in the same site, network (ASN) or owner's hands
===========  ======  ===========================================================================================

The first four are about the job, the last about those who come after it: without it a job that would take any node
takes the only one that another can use, because it is a little cheaper. It ranks nodes and refuses none.

Who declares no site, ASN or owner counts as standing with all others who declare none: silence must not pay.
The cost only ranks; it is no amount of money.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from heapq import nsmallest
from operator import attrgetter
from typing import Any, Self

PRICE_WEIGHT = 3


LOCALITY_WEIGHT = 2


TOPOLOGY_WEIGHT = 3


SPREAD_WEIGHT = 2


SCARCITY_WEIGHT = 4


SLOW_MS = 400
"""A round trip this long, and any longer or unknown one, counts as the worst."""


EPSILON = 1e-9
"""A gain in cost that is no larger is none: sums of the same shares differ by their sequence."""


_SHORTLIST = 32


_SHORTLIST_PER_NODE = 8


_DOMAINS = 3


class Constraint(StrEnum):
    """What of a node a job may not accept."""

    REGION = "region"
    ENVIRONMENT_CLASS = "environment_class"
    GPU_MEMORY = "gpu_memory"
    RELIABILITY = "reliability"
    ATTESTATION = "attestation"


@dataclass(frozen=True, slots=True)
class Node:
    """A node as placement sees it.

    Memory (GB of one GPU), region, site, ASN and owner are what the node declares, and not proven. ``reliability_bps``:
    of 10,000. ``round_trip_ms``: measured by the node to the market, through which all training traffic goes.
    """

    provider: str
    region: str
    environment_class: str
    _: KW_ONLY
    gpu_memory_gb: float = 0.0
    reliability_bps: int = 0
    attested: bool = False
    site: str | None = None
    asn: int | None = None
    owner: str | None = None
    round_trip_ms: int | None = None

    @property
    def make(self) -> Hashable:
        """All that requirements look at but reliability, which each node may have of its own."""
        return self.region, self.environment_class, self.gpu_memory_gb, self.attested

    @property
    def kind(self) -> Hashable:
        """All that requirements look at: they accept all nodes of a kind or none."""
        return self.make, self.reliability_bps

    @property
    def book(self) -> Hashable:
        """Where it is sold. All nodes of a gang are of one book: one zone and class."""
        return self.region, self.environment_class


@dataclass(frozen=True, slots=True)
class Requirements:
    """What a job asks of each of its nodes beyond their tier. Empty lists accept everything."""

    regions: frozenset[str] = frozenset()
    excluded_regions: frozenset[str] = frozenset()
    environment_classes: frozenset[str] = frozenset()
    min_gpu_memory_gb: float = 0.0
    min_reliability_bps: int = 0
    attested_only: bool = False

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """The requirements as a job keeps them; those that it does not name ask for nothing."""
        lists = ("regions", "excluded_regions", "environment_classes")
        return cls(
            **{name: frozenset(document.get(name, ())) for name in lists},
            min_gpu_memory_gb=document.get("min_gpu_memory_gb") or 0.0,
            min_reliability_bps=document.get("min_reliability_bps") or 0,
            attested_only=bool(document.get("attested_only")),
        )

    def allows_region(self, region: str) -> bool:
        """Whether nodes of a region are accepted."""
        return (not self.regions or region in self.regions) and region not in self.excluded_regions

    def broken_by(self, node: Node) -> list[Constraint]:
        """All that keeps the job from accepting a node."""
        return list(self._broken_by(node))

    def accepts(self, node: Node) -> bool:
        """Whether the job may be placed on a node."""
        return next(self._broken_by(node), None) is None

    def _broken_by(self, node: Node) -> Iterator[Constraint]:
        if not self.allows_region(node.region):
            yield Constraint.REGION
        if self.environment_classes and node.environment_class not in self.environment_classes:
            yield Constraint.ENVIRONMENT_CLASS
        if node.gpu_memory_gb < self.min_gpu_memory_gb:
            yield Constraint.GPU_MEMORY
        if node.reliability_bps < self.min_reliability_bps:
            yield Constraint.RELIABILITY
        if self.attested_only and not node.attested:
            yield Constraint.ATTESTATION


ANYTHING = Requirements()


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A node that a job accepts.

    ``price``: its ask over the price that the job pays. ``missing``: share of the job's data that it does not hold.
    ``scarcity``: how much others miss it.
    """

    node: Node
    price: float = 0.0
    missing: float = 1.0
    scarcity: float = 0.0

    @property
    def own_cost(self) -> float:
        """What it adds to the cost of any gang, whoever else is in it."""
        return PRICE_WEIGHT * self.price + LOCALITY_WEIGHT * self.missing + SCARCITY_WEIGHT * self.scarcity

    @property
    def cost_alone(self) -> float:
        """What it costs as a gang of one."""
        return self.own_cost + TOPOLOGY_WEIGHT * self.slowness

    @property
    def slowness(self) -> float:
        """Its round trip, from 0 to 1."""
        known = self.node.round_trip_ms
        return 1.0 if known is None else min(known, SLOW_MS) / SLOW_MS


def gang_cost(gang: Sequence[Candidate]) -> float:
    """The objective: lower is better; only gangs of the same size compare."""
    state = _Gang(len(gang))
    for member in gang:
        state.add(member)
    return state.cost()


def choose(size: int, candidates: Sequence[Candidate], held: Sequence[Candidate] = ()) -> list[Candidate]:
    """The ``size`` candidates that serve best together with those ``held`` already; fewer if there are not so many.

    Of the cheapest alone, a shortlist, it takes greedily, then exchanges members as long as that lowers the cost. The
    result is not always the best (``benchmarks/README.md`` has the gap), and of equals it takes those that come first.
    """
    length = shortlist_length(size, size + len(held))
    return gather(size, nsmallest(length, candidates, key=attrgetter("cost_alone")), held)


def shortlist_length(size: int, total: int) -> int:
    """How many candidates are looked at for ``size`` members of a gang of ``total``; of one alone, the cheapest."""
    return _SHORTLIST + _SHORTLIST_PER_NODE * size if total > 1 else size


def gather(size: int, shortlist: Iterable[Candidate], held: Sequence[Candidate] = ()) -> list[Candidate]:
    """As :func:`choose`, of a shortlist in which the cheapest alone come first."""
    pool, total = list(shortlist), size + len(held)
    size = min(size, len(pool))
    gang, chosen = _Gang(total, held), []
    for _ in range(size):
        best = min(pool, key=gang.cost)
        pool.remove(best)
        gang.add(best)
        chosen.append(best)
    improved = total > 1
    while improved:
        improved = False
        for index, member in enumerate(chosen):
            before = gang.cost()
            gang.remove(member)
            best = min(pool, key=gang.cost, default=member)
            if gang.cost(best) < before - EPSILON:
                pool.remove(best)
                pool.append(member)
                chosen[index] = member = best
                improved = True
            gang.add(member)
    return chosen


class _Gang:
    """A gang of ``size`` in the making, and what it costs so far."""

    def __init__(self, size: int, members: Iterable[Candidate] = ()) -> None:
        self._size = size
        self._own = 0.0
        self._pairs = 0  # of members that share a domain, once for each domain shared
        self._slowness: Counter[float] = Counter()
        self._slowest = 0.0
        self._sites: Counter[str | None] = Counter()
        self._networks: Counter[int | None] = Counter()
        self._owners: Counter[str | None] = Counter()
        for member in members:
            self.add(member)

    def cost(self, newcomer: Candidate | None = None) -> float:
        """The cost of its members and, if given, of one more."""
        own, slowest, pairs = self._own, self._slowest, self._pairs
        if newcomer is not None:
            own += newcomer.own_cost
            slowest = max(slowest, newcomer.slowness)
            pairs += self._shared(newcomer.node)
        spread = 2 * pairs / (_DOMAINS * (self._size - 1)) if self._size > 1 else 0.0
        return own + TOPOLOGY_WEIGHT * self._size * slowest + SPREAD_WEIGHT * spread

    def add(self, member: Candidate) -> None:
        self._own += member.own_cost
        self._pairs += self._shared(member.node)
        self._count(member, 1)

    def remove(self, member: Candidate) -> None:
        self._own -= member.own_cost
        self._count(member, -1)
        self._pairs -= self._shared(member.node)

    def _count(self, member: Candidate, change: int) -> None:
        node = member.node
        self._sites[node.site] += change
        self._networks[node.asn] += change
        self._owners[node.owner] += change
        self._slowness[member.slowness] += change
        self._slowest = max((slowness for slowness, count in self._slowness.items() if count), default=0.0)

    def _shared(self, node: Node) -> int:
        return self._sites[node.site] + self._networks[node.asn] + self._owners[node.owner]
