"""Free nodes of one zone and class, kept in order, so that a choice among many looks at few. Pure."""

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

_Entry = tuple[float, int, Candidate]  # its cost alone, when it was added, and the node


class Pool:
    """Candidates by kind, each kind in the order of what a node costs alone.

    Requirements are looked at once a kind and not once a node, and of each kind only as many nodes as a shortlist has.
    With k kinds a choice takes O(k) steps and then those among its shortlist. Where every node is a kind of its own (a
    reliability that no other has), that is a look at each node, as without a pool.
    """

    def __init__(
        self, candidates: Iterable[Candidate] = (), kind: Callable[[Node], Hashable] = attrgetter("kind")
    ) -> None:
        """Args:
        candidates: of which it consists at first.
        kind: names a node's kind; two nodes of one kind must be alike in all that choices will ask of them.
        """
        self._kind = kind
        self._kinds: dict[Hashable, list[_Entry]] = {}
        self._entries: dict[str, _Entry] = {}
        self._added = 0
        for candidate in candidates:
            self.add(candidate)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, candidate: Candidate) -> None:
        """A node is free. Its share of data missing and its scarcity are left to each choice: give the defaults."""
        entry = candidate.cost_alone, self._added, candidate
        self._added += 1
        self._entries[candidate.node.provider] = entry
        insort(self._kinds.setdefault(self._kind(candidate.node), []), entry)

    def remove(self, provider: str) -> Candidate:
        """The node is not free any more.

        Raises:
            KeyError: it was not.
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
        """The nodes that :func:`~market.domain.nodes.placement.choose` would choose of all in the pool; none is
        removed.

        Args:
            size: how many; fewer are chosen if there are not so many.
            requirements: what the job asks of each.
            scarcity: by kind of node; a kind that is not named has none.
            missing: by provider, what share of the job's data it does not hold; who is not named holds nothing.
        """
        scarcity, missing = scarcity or {}, missing or {}
        length = shortlist_length(size, size)
        known = [self._entries[provider] for provider in missing if provider in self._entries]
        entries: list[_Entry] = []
        for kind, of_kind in self._kinds.items():
            if requirements.accepts(of_kind[0][2].node):
                more = SCARCITY_WEIGHT * scarcity.get(kind, 0.0)
                strangers = _strangers(of_kind, missing, length)
                near = [
                    (cost - LOCALITY_WEIGHT * (1 - missing[one.node.provider]), number, one)
                    for cost, number, one in known
                    if self._kind(one.node) == kind
                ]
                entries += [(cost + more, number, one) for cost, number, one in strangers + near]
        shortlist = [
            replace(one, scarcity=scarcity.get(self._kind(one.node), 0.0), missing=missing.get(one.node.provider, 1.0))
            for _, _, one in nsmallest(length, entries, key=itemgetter(0, 1))
        ]
        return gather(size, shortlist)


def _strangers(entries: Sequence[_Entry], missing: Mapping[str, float], length: int) -> list[_Entry]:
    """The first of a kind that hold none of the job's data."""
    if not missing:
        return list(entries[:length])
    found: list[_Entry] = []
    for entry in entries:
        if len(found) == length:
            break
        if entry[2].node.provider not in missing:
            found.append(entry)
    return found
