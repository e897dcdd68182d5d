"""The sealed call market: one clearing price for one book. Pure; seed and reserve are arguments.

A bid is a gang: it wants ``qty`` nodes or none. An ask is one node, offered net of the fee, so it enters the book
grossed up: ``ceil(ask * 10_000 / (10_000 - fee_bps))``. The tier's reserve is a floor under every ask, hence under
every price: a bid whose limit is lower never trades.

With at least ``THICK`` bids and asks the rule is SBBA (Segal-Halevi, Hassidim and Aumann, 2016, arXiv 1607.05139). For
orders of one node, with limits b1 >= b2 >= ... and costs s1 <= s2 <= ..., let k be the last index with b_k >= s_k. The
price is min(b_k, s_{k+1}). If that is s_{k+1}, the first k of both sides trade. Otherwise the price is b_k, the first
k - 1 buyers trade, and the k - 1 sellers are drawn from the first k. For gangs the ranks count nodes: bids are served
from the highest limit while the dearest ask that they need is within it, and b_k is the last one served.

A thinner book trades openly at the reserve, first come, first served. A gang that does not fit is passed over and
stays in the book, under both rules. What is claimed of these rules, and what is not, stands in ``docs/auctions.md``.
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
    """A gang of ``qty`` nodes wanted at no more than ``limit_price`` wei per GPU-hour.

    ``time``: when it came, or its place in the sequence of arrival; of one kind within a book.
    """

    id: str
    qty: int
    limit_price: int
    time: datetime | int


@dataclass(frozen=True, slots=True)
class AskOrder:
    """One node offered at no less than ``limit_price`` wei per GPU-hour, net of the fee; ``time`` as of a bid."""

    id: str
    limit_price: int
    time: datetime | int


@dataclass(frozen=True, slots=True)
class Clearing:
    """What came of a book. ``price``: gross wei per GPU-hour, the same for all; None when nobody trades."""

    price: int | None
    rule: Literal["sbba", "posted"]
    fills: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Ids of the asks that each filled bid gets."""
    drawn: bool = False
    """Whether the lot decided who sells. Price and buyers never depend on it."""


def gross_ask(net_price: int, fee_bps: int) -> int:
    """The least gross price that leaves ``net_price`` after a fee of ``fee_bps``."""
    return -(-net_price * BPS // (BPS - fee_bps))


def clear(bids: Sequence[BidOrder], asks: Sequence[AskOrder], reserve: int, fee_bps: int, seed: bytes) -> Clearing:
    """Clear one book by the rule for its size.

    Args:
        bids, asks: standing orders with distinct ids in any sequence; the result does not depend on it.
        reserve: least gross price in wei per GPU-hour.
        seed: 32 bytes for the lot; anyone who has it can repeat the clearing.
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
    # Asks below the reserve rank as equals: undercutting where the price cannot follow must not pay.
    ranked = sorted((max(gross_ask(ask.limit_price, fee_bps), reserve), ask.time, ask.id) for ask in asks)
    ladder = [cost for cost, _, _ in ranked]
    served = _serve(sorted(bids, key=lambda bid: (-bid.limit_price, bid.time, bid.id)), ladder)
    if not served:
        return Clearing(None, "sbba")
    taken = sum(bid.qty for bid in served)
    sellers = [ask_id for _, _, ask_id in islice(ranked, taken)]
    marginal = served[-1]
    if taken < len(ladder) and ladder[taken] <= marginal.limit_price:
        return Clearing(ladder[taken], "sbba", _allot(served, sellers))
    winners = served[:-1]
    if not winners:
        return Clearing(None, "sbba")
    return Clearing(marginal.limit_price, "sbba", _allot(winners, _draw(sellers, marginal.qty, seed)), drawn=True)


def _serve(bids: Iterable[BidOrder], ladder: Sequence[int]) -> list[BidOrder]:
    """The bids, in the given sequence, that fit: enough asks are left and the dearest needed is within the limit."""
    served, taken, supply = [], 0, len(ladder)
    for bid in bids:
        needed = taken + bid.qty
        if needed <= supply and ladder[needed - 1] <= bid.limit_price:
            served.append(bid)
            taken = needed
    return served


def _allot(bids: Sequence[BidOrder], ask_ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Asks dealt out to the bids in sequence."""
    left = iter(ask_ids)
    return {bid.id: tuple(islice(left, bid.qty)) for bid in bids}


def _draw(ask_ids: Sequence[str], losers: int, seed: bytes) -> list[str]:
    """The asks, in the given sequence, without the ``losers`` whose lot ``sha256(seed || id)`` is lowest."""
    out = set(nsmallest(losers, ask_ids, key=lambda ask_id: hashlib.sha256(seed + ask_id.encode()).digest()))
    return [ask_id for ask_id in ask_ids if ask_id not in out]
