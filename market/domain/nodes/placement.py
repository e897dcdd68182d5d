"""Requirements of a tier and a job on nodes, and selection of its gang. Pure.

A job never gets a node that fails a requirement. Among the others, the gang with the lowest cost is the best. The cost
is a weighted sum of these terms, each from 0 to 1 per node and summed over the gang's nodes:

- price (weight 3): the node's ask over the price that the job pays.
- locality (2): share of the job's data (dataset and newest checkpoint) that the node lacks.
- topology (3): slowest round trip in the gang over ``SLOW_MS``. A round ends with its slowest node.
- spread (2): share of the gang's other nodes with the same site, network (ASN) or owner.
- scarcity (4): demand of other jobs for the node. It protects later jobs that can use no other node.

Nodes without a declared site, ASN or owner count as one group. Otherwise omitting the declaration would lower a node's
spread cost.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from heapq import nsmallest
from operator import attrgetter
from typing import Any, Self

from market.domain.network import BPS, Tier

PRICE_WEIGHT = 3
LOCALITY_WEIGHT = 2
TOPOLOGY_WEIGHT = 3
SPREAD_WEIGHT = 2
SCARCITY_WEIGHT = 4

SLOW_MS = 400
"""Round trip in milliseconds from which a node counts as slowest; an unknown one counts like it."""

EPSILON = 1e-9
"""Smallest gain in cost that counts. Sums of equal shares differ by their order."""

MEMORY_TOLERANCE_BPS = 200
"""Share of a published amount of memory that may be missing. Devices and hosts report fewer GiB than the GB of their
data sheets: drivers, error correction and the kernel keep a part."""

_SHORTLIST = 32
_SHORTLIST_PER_NODE = 8
_DOMAINS = 3


class Constraint(StrEnum):
    """Property of a node that a requirement restricts."""

    REGION = "region"
    ENVIRONMENT_CLASS = "environment_class"
    GPU_MEMORY = "gpu_memory"
    SPEED = "speed"
    RELIABILITY = "reliability"
    ATTESTATION = "attestation"


@dataclass(frozen=True, slots=True)
class Node:
    """Node for placement.

    GPU memory, region, site, ASN and owner are declared, not proven. The node measures ``round_trip_ms`` to the market,
    through which all training traffic goes. ``measured_mflops``: coarse speed in its last passed benchmark.
    """

    provider: str
    region: str
    environment_class: str
    _: KW_ONLY
    gpu_memory_gb: float = 0.0
    measured_mflops: int = 0
    reliability_bps: int = 0
    attested: bool = False
    site: str | None = None
    asn: int | None = None
    owner: str | None = None
    round_trip_ms: int | None = None

    @property
    def make(self) -> Hashable:
        """Return all properties that requirements read, except reliability."""
        return self.region, self.environment_class, self.gpu_memory_gb, self.measured_mflops, self.attested

    @property
    def kind(self) -> Hashable:
        """Return all properties that requirements read: they accept all nodes of a kind or none."""
        return self.make, self.reliability_bps

    @property
    def book(self) -> Hashable:
        """Return zone and environment class, which all nodes of a gang share."""
        return self.region, self.environment_class


def coarse_mflops(measured: int) -> int:
    """Return a speed rounded down to two digits: nodes of equal hardware are of one make."""
    step: int = 10 ** max(0, len(str(measured)) - 2)
    return measured // step * step


def has_memory(declared_gb: float, published_gb: float) -> bool:
    """Return whether a node has a published amount of memory (GB of 10**9 bytes), or nearly."""
    return declared_gb * BPS >= published_gb * (BPS - MEMORY_TOLERANCE_BPS)


def insufficient_key(hardware: Mapping[str, object], tier: Tier) -> str | None:
    """Return the first key of the declared hardware that is below the tier's number, or None.

    The number of GPUs is not compared: the required speed implies it.
    """
    declared = {key: float(str(hardware[key])) for key in ("gpu_memory_gb", "ram_gb", "network_gbps")}
    if not has_memory(declared["gpu_memory_gb"], tier.gpu_memory_gb):
        return "gpu_memory_gb"
    if not has_memory(declared["ram_gb"], tier.ram_gb):
        return "ram_gb"
    return None if declared["network_gbps"] >= tier.network_gbps else "network_gbps"


@dataclass(frozen=True, slots=True)
class Requirements:
    """Requirements of a job on its nodes besides the tier; empty lists accept everything."""

    regions: frozenset[str] = frozenset()
    excluded_regions: frozenset[str] = frozenset()
    environment_classes: frozenset[str] = frozenset()
    min_gpu_memory_gb: float = 0.0
    min_mflops: int = 0
    min_reliability_bps: int = 0
    attested_only: bool = False

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Return the requirements of a job's stored document; a missing one accepts everything."""
        lists = ("regions", "excluded_regions", "environment_classes")
        return cls(
            **{name: frozenset(document.get(name, ())) for name in lists},
            min_gpu_memory_gb=document.get("min_gpu_memory_gb") or 0.0,
            min_mflops=document.get("min_mflops") or 0,
            min_reliability_bps=document.get("min_reliability_bps") or 0,
            attested_only=bool(document.get("attested_only")),
        )

    def allows_region(self, region: str) -> bool:
        return (not self.regions or region in self.regions) and region not in self.excluded_regions

    def broken_by(self, node: Node) -> list[Constraint]:
        return list(self._broken_by(node))

    def accepts(self, node: Node) -> bool:
        return next(self._broken_by(node), None) is None

    def _broken_by(self, node: Node) -> Iterator[Constraint]:
        if not self.allows_region(node.region):
            yield Constraint.REGION
        if self.environment_classes and node.environment_class not in self.environment_classes:
            yield Constraint.ENVIRONMENT_CLASS
        if not has_memory(node.gpu_memory_gb, self.min_gpu_memory_gb):
            yield Constraint.GPU_MEMORY
        if node.measured_mflops < self.min_mflops:
            yield Constraint.SPEED
        if node.reliability_bps < self.min_reliability_bps:
            yield Constraint.RELIABILITY
        if self.attested_only and not node.attested:
            yield Constraint.ATTESTATION


ANYTHING = Requirements()


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """Node that a job accepts, with its terms of the cost.

    ``missing`` is the share of the job's data that the node lacks.
    """

    node: Node
    price: float = 0.0
    missing: float = 1.0
    scarcity: float = 0.0

    @property
    def own_cost(self) -> float:
        """Return the part of the cost that does not depend on the gang's other nodes."""
        return PRICE_WEIGHT * self.price + LOCALITY_WEIGHT * self.missing + SCARCITY_WEIGHT * self.scarcity

    @property
    def cost_alone(self) -> float:
        """Return the cost of the node as a gang of one."""
        return self.own_cost + TOPOLOGY_WEIGHT * self.slowness

    @property
    def slowness(self) -> float:
        """Return the round trip as a share of ``SLOW_MS``."""
        known = self.node.round_trip_ms
        return 1.0 if known is None else min(known, SLOW_MS) / SLOW_MS


def gang_cost(gang: Sequence[Candidate]) -> float:
    """Return the cost of a gang; comparable between gangs of one size."""
    state = _Gang(len(gang))
    for member in gang:
        state.add(member)
    return state.cost()


def choose(size: int, candidates: Sequence[Candidate], held: Sequence[Candidate] = ()) -> list[Candidate]:
    """Return ``size`` candidates with the lowest cost together with ``held``, fewer if short.

    A greedy choice among the cheapest candidates (the shortlist) is improved by exchanges. The result is not always
    optimal (``benchmarks/README.md`` has the gap). Earlier candidates win ties.
    """
    length = shortlist_length(size, size + len(held))
    return gather(size, nsmallest(length, candidates, key=attrgetter("cost_alone")), held)


def shortlist_length(size: int, total: int) -> int:
    """Return the number of candidates to consider for ``size`` members of a gang of ``total``."""
    return _SHORTLIST + _SHORTLIST_PER_NODE * size if total > 1 else size


def gather(size: int, shortlist: Iterable[Candidate], held: Sequence[Candidate] = ()) -> list[Candidate]:
    """Choose as :func:`choose` from a shortlist in ascending order of ``cost_alone``."""
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
    def __init__(self, size: int, members: Iterable[Candidate] = ()) -> None:
        self._size = size
        self._own = 0.0
        self._pairs = 0  # number of (two members, site or network or owner that they share)
        self._slowness: Counter[float] = Counter()
        self._slowest = 0.0
        self._sites: Counter[str | None] = Counter()
        self._networks: Counter[int | None] = Counter()
        self._owners: Counter[str | None] = Counter()
        for member in members:
            self.add(member)

    def cost(self, newcomer: Candidate | None = None) -> float:
        """Return the cost of the members and, if given, of one more."""
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
