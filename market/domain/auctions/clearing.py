"""The sealed call market: one clearing price for one order book. Pure.

A bid is a gang of ``qty`` nodes, all or none. An ask is one node, net of the fee; it enters the book as the gross price
``ceil(ask * 10_000 / (10_000 - fee_bps))``. The tier's reserve price is a floor under every ask, hence under every
price. A bid with a lower limit never trades.

With at least ``THICK`` bids and asks the rule is SBBA (Segal-Halevi, Hassidim and Aumann, 2016, arXiv 1607.05139). For
orders of one node, with limits b1 >= b2 >= ... and costs s1 <= s2 <= ..., let k be the last index with b_k >= s_k. The
price is min(b_k, s_{k+1}). If that is s_{k+1}, the first k of both sides trade. Otherwise the price is b_k, the first
k - 1 buyers trade, and k - 1 sellers are selected at random from the first k. For gangs the ranks count nodes. Bids are
filled from the highest limit while their most expensive ask is within it; b_k is the last one filled.

A thinner book trades at the reserve, first come, first served. Under both rules a gang that does not fit stays in the
book. ``docs/auctions.md`` states the properties of these rules.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from heapq import nsmallest
from itertools import islice
from typing import Literal

from market.domain.network import BPS

THICK = 5


@dataclass(frozen=True, slots=True)
class BidOrder:
    """Bid for a gang of ``qty`` nodes at no more than ``limit_price`` wei per GPU-hour.

    ``time`` is the arrival time or the position in the order of arrival: one of both for a whole book.
    """

    id: str
    qty: int
    limit_price: int
    time: datetime | int


@dataclass(frozen=True, slots=True)
class AskOrder:
    """Offer of a node at no less than ``limit_price`` wei per GPU-hour, net of the fee."""

    id: str
    limit_price: int
    time: datetime | int


@dataclass(frozen=True, slots=True)
class Clearing:
    """Result of one book; ``price`` is gross wei per GPU-hour for all, None without a trade."""

    price: int | None
    rule: Literal["sbba", "posted"]
    fills: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Ids of the asks by filled bid."""
    drawn: bool = False
    """True if the random tie-break selected the sellers. Price and buyers never depend on it."""


def gross_ask(net_price: int, fee_bps: int) -> int:
    """Return the lowest gross price that leaves ``net_price`` after a fee of ``fee_bps``."""
    return -(-net_price * BPS // (BPS - fee_bps))


def clear(bids: Sequence[BidOrder], asks: Sequence[AskOrder], reserve: int, fee_bps: int, seed: bytes) -> Clearing:
    """Clear one book by the rule for its size.

    Args:
        bids, asks: open orders with distinct ids. The result does not depend on their order.
        reserve: lowest gross price in wei per GPU-hour.
        seed: 32 bytes for the random tie-break; the clearing is a function of it.
    """
    if len(bids) < THICK or len(asks) < THICK:
        return clear_posted(bids, asks, reserve, fee_bps)
    return clear_sbba(bids, asks, reserve, fee_bps, seed)


def clear_posted(bids: Sequence[BidOrder], asks: Sequence[AskOrder], reserve: int, fee_bps: int) -> Clearing:
    """Trade at the reserve, first come, first served; arguments as of :func:`clear`."""
    willing = [ask for ask in asks if gross_ask(ask.limit_price, fee_bps) <= reserve]
    willing.sort(key=lambda ask: (ask.time, ask.id))
    served = _serve(sorted(bids, key=lambda bid: (bid.time, bid.id)), [reserve] * len(willing))
    return Clearing(reserve if served else None, "posted", _allot(served, [ask.id for ask in willing]))


def clear_sbba(bids: Sequence[BidOrder], asks: Sequence[AskOrder], reserve: int, fee_bps: int, seed: bytes) -> Clearing:
    """Trade by SBBA, whatever the size of the book; arguments as of :func:`clear`."""
    # Asks below the reserve rank as equals: a lower ask must not gain where the price cannot fall.
    ranked = sorted((max(gross_ask(ask.limit_price, fee_bps), reserve), ask.time, ask.id) for ask in asks)
    costs = [cost for cost, _, _ in ranked]
    served = _serve(sorted(bids, key=lambda bid: (-bid.limit_price, bid.time, bid.id)), costs)
    if not served:
        return Clearing(None, "sbba")
    taken = sum(bid.qty for bid in served)
    sellers = [ask_id for _, _, ask_id in islice(ranked, taken)]
    marginal = served[-1]
    if taken < len(costs) and costs[taken] <= marginal.limit_price:
        return Clearing(costs[taken], "sbba", _allot(served, sellers))
    winners = served[:-1]
    if not winners:
        return Clearing(None, "sbba")
    return Clearing(marginal.limit_price, "sbba", _allot(winners, _draw(sellers, marginal.qty, seed)), drawn=True)


def _serve(bids: Iterable[BidOrder], costs: Sequence[int]) -> list[BidOrder]:
    """Return the bids, in order, that fit: asks are left and the limit covers the costliest."""
    served, taken, supply = [], 0, len(costs)
    for bid in bids:
        needed = taken + bid.qty
        if needed <= supply and costs[needed - 1] <= bid.limit_price:
            served.append(bid)
            taken = needed
    return served


def _allot(bids: Sequence[BidOrder], ask_ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    left = iter(ask_ids)
    return {bid.id: tuple(islice(left, bid.qty)) for bid in bids}


def _draw(ask_ids: Sequence[str], losers: int, seed: bytes) -> list[str]:
    """Return the asks in order without the ``losers`` of lowest ``sha256(seed || id)``."""
    out = set(nsmallest(losers, ask_ids, key=lambda ask_id: hashlib.sha256(seed + ask_id.encode()).digest()))
    return [ask_id for ask_id in ask_ids if ask_id not in out]
