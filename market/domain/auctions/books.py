"""Division of an order book into sub-books that clear separately. Pure.

Every bid of a sub-book accepts every node of it, and all its nodes have one environment class. Replays compare bits,
which only nodes of one class can agree on. Each set of nodes of a class that some bid accepts is one sub-book, with all
bids that accept the whole set. A bid may be in several sub-books; an auction round clears one of them.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from market.domain.auctions.clearing import BidOrder
from market.domain.nodes.placement import ANYTHING, Node, Requirements

NodeT = TypeVar("NodeT", bound=Node)


@dataclass(frozen=True, slots=True)
class StandingBid(BidOrder):
    """Bid with the requirements on each of its nodes."""

    requirements: Requirements = ANYTHING


@dataclass(frozen=True, slots=True)
class SubBook(Generic[NodeT]):
    environment_class: str
    bids: tuple[StandingBid, ...]
    offers: tuple[NodeT, ...]


def partition_book(bids: Sequence[StandingBid], offers: Sequence[NodeT], number: int) -> list[SubBook[NodeT]]:
    """Return all sub-books, rotated by ``number`` so that each is first in some round.

    Bids and offers keep their order.
    """
    by_class: defaultdict[str, list[NodeT]] = defaultdict(list)
    for offer in offers:
        by_class[offer.environment_class].append(offer)
    kinds = {bid.requirements for bid in bids}
    found = []
    for name, of_class in sorted(by_class.items()):
        accepted = {kind: frozenset(node.provider for node in of_class if kind.accepts(node)) for kind in kinds}
        for part in sorted({nodes for nodes in accepted.values() if nodes}, key=sorted):
            found.append(
                SubBook(
                    name,
                    tuple(bid for bid in bids if part <= accepted[bid.requirements]),
                    tuple(offer for offer in of_class if offer.provider in part),
                )
            )
    first = number % len(found) if found else 0
    return found[first:] + found[:first]
