"""Which orders of a book may meet in one clearing. Pure.

All asks of a clearing must be alike to all of its bids: nodes of one environment class, because replays compare bits
within a class, and none of them refused by any of the bids. So the book falls into parts. There is one part for each
set of nodes that is exactly what some bid accepts of a class; in it stand those nodes, and every bid that accepts them
all. A bid may stand in several parts, but a round clears one.
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
    """A bid with what it requires of each of its nodes."""

    requirements: Requirements = ANYTHING


@dataclass(frozen=True, slots=True)
class SubBook(Generic[NodeT]):
    """Orders that may meet."""

    environment_class: str
    bids: tuple[StandingBid, ...]
    offers: tuple[NodeT, ...]


def partition_book(bids: Sequence[StandingBid], offers: Sequence[NodeT], number: int) -> list[SubBook[NodeT]]:
    """All parts of a book; each round of it, by ``number``, begins with the next one, so that every part has its turn.

    Bids and offers keep their sequence.
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
