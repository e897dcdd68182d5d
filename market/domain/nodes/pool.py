"""Ordered pool of the free nodes of one zone and class. Pure."""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import nsmallest
from operator import attrgetter, itemgetter

from market.domain.nodes.placement import (
    ANYTHING,
    LOCALITY_WEIGHT,
    SCARCITY_WEIGHT,
    Candidate,
    Node,
    Requirements,
    gather,
    shortlist_length,
)

_Entry = tuple[float, int, Candidate]  # cost alone, order of insertion, node


class Pool:
    """Candidates by kind, each kind in ascending order of ``cost_alone``.

    A choice tests requirements once per kind and reads at most a shortlist of each kind: O(k) for k kinds, plus the
    shortlist. ``kind`` must give the same value only to nodes that requirements cannot tell apart.
    """

    def __init__(
        self, candidates: Iterable[Candidate] = (), kind: Callable[[Node], Hashable] = attrgetter("kind")
    ) -> None:
        self._kind = kind
        self._kinds: dict[Hashable, list[_Entry]] = {}
        self._entries: dict[str, _Entry] = {}
        self._added = 0
        for candidate in candidates:
            self.add(candidate)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, candidate: Candidate) -> None:
        """Add a free node with default ``missing`` and ``scarcity``; each choice sets them."""
        entry = candidate.cost_alone, self._added, candidate
        self._added += 1
        self._entries[candidate.node.provider] = entry
        insort(self._kinds.setdefault(self._kind(candidate.node), []), entry)

    def remove(self, provider: str) -> Candidate:
        """Remove a node from the free ones.

        Raises:
            KeyError: if it is not in the pool.
        """
        entry = self._entries.pop(provider)
        kind = self._kind(entry[2].node)
        entries = self._kinds[kind]
        del entries[bisect_left(entries, entry)]
        if not entries:
            del self._kinds[kind]
        return entry[2]

    def choose(
        self,
        size: int,
        requirements: Requirements = ANYTHING,
        *,
        scarcity: Mapping[Hashable, float] | None = None,
        missing: Mapping[str, float] | None = None,
    ) -> list[Candidate]:
        """Return the pool's :func:`~market.domain.nodes.placement.choose`, without removing it.

        Args:
            size: number of nodes; the result has fewer if the pool has too few.
            scarcity: by kind of node; default 0.
            missing: share of the job's data that the node lacks, by provider; default 1.
        """
        scarcity, missing = scarcity or {}, missing or {}
        length = shortlist_length(size, size)
        known = [self._entries[provider] for provider in missing if provider in self._entries]
        entries: list[_Entry] = []
        for kind, of_kind in self._kinds.items():
            if requirements.accepts(of_kind[0][2].node):
                more = SCARCITY_WEIGHT * scarcity.get(kind, 0.0)
                without_data = _without_data(of_kind, missing, length)
                near = [
                    (cost - LOCALITY_WEIGHT * (1 - missing[one.node.provider]), number, one)
                    for cost, number, one in known
                    if self._kind(one.node) == kind
                ]
                entries += [(cost + more, number, one) for cost, number, one in without_data + near]
        shortlist = [
            replace(one, scarcity=scarcity.get(self._kind(one.node), 0.0), missing=missing.get(one.node.provider, 1.0))
            for _, _, one in nsmallest(length, entries, key=itemgetter(0, 1))
        ]
        return gather(size, shortlist)


def _without_data(entries: Sequence[_Entry], missing: Mapping[str, float], length: int) -> list[_Entry]:
    """Return the first ``length`` entries that hold none of the job's data."""
    if not missing:
        return list(entries[:length])
    found: list[_Entry] = []
    for entry in entries:
        if len(found) == length:
            break
        if entry[2].node.provider not in missing:
            found.append(entry)
    return found
