"""The sealed call market: one clearing price for one book. Pure; seed and reserve are arguments.

A bid is a gang: it wants ``qty`` nodes or none. An ask is one node, offered net of the fee, so it enters the book
grossed up: ``ceil(ask * 10_000 / (10_000 - fee_bps))``. The tier's reserve is a floor under every ask, hence under
every price: a bid whose limit is lower never trades.

With at least ``THICK`` bids and asks the rule is SBBA (Segal-Halevi, Hassidim and Aumann, 2016, arXiv 1607.05139):
strongly budget balanced, and truthful for bids of one node. Serve bids from the highest limit while the asks that
they need cost no more than that limit. If the next ask is within the last served limit, it sets the price and all
of them trade. Otherwise the last served bid sets the price and does not trade, and the asks that this leaves over
are drawn by lot from a seed that was committed before the book closed.

A thinner book trades openly at the reserve, first come, first served. A gang that does not fit is passed over and
stays in the book, under both rules.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from market.domain.money import BPS

THICK = 5


@dataclass(frozen=True, slots=True)
class BidOrder:
    """A gang of ``qty`` nodes wanted at no more than ``limit_price`` wei per GPU-hour, in the book since ``time``."""

    id: str
    qty: int
    limit_price: int
    time: datetime


@dataclass(frozen=True, slots=True)
class AskOrder:
    """One node offered at no less than ``limit_price`` wei per GPU-hour, net of the fee, since ``time``."""

    id: str
    limit_price: int
    time: datetime


@dataclass(frozen=True, slots=True)
class Clearing:
    """What came of a book. ``price``: gross wei per GPU-hour, the same for all; None when nobody trades."""

    price: int | None
    rule: Literal["sbba", "posted"]
    fills: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Ids of the asks that each filled bid gets."""


def gross_ask(net_price: int, fee_bps: int) -> int:
    """The least gross price that leaves ``net_price`` after a fee of ``fee_bps``."""
    return -(-net_price * BPS // (BPS - fee_bps))


def clear(bids: Sequence[BidOrder], asks: Sequence[AskOrder], reserve: int, fee_bps: int, seed: bytes) -> Clearing:
    """Clear one book.

    Args:
        bids, asks: standing orders in any sequence; the result does not depend on it.
        reserve: least gross price in wei per GPU-hour.
        seed: 32 bytes for the lot; anyone who has it can repeat the clearing.
    """
    costs = {ask.id: max(gross_ask(ask.limit_price, fee_bps), reserve) for ask in asks}
    # Asks below the reserve rank as equals: undercutting where the price cannot follow must not pay.
    ranked_asks = sorted(asks, key=lambda ask: (costs[ask.id], ask.time, ask.id))
    if len(bids) < THICK or len(asks) < THICK:
        at_reserve = [ask for ask in ranked_asks if costs[ask.id] == reserve]
        served = _serve(sorted(bids, key=lambda bid: (bid.time, bid.id)), [reserve] * len(at_reserve))
        return Clearing(reserve if served else None, "posted", _allot(served, at_reserve))

    ladder = [costs[ask.id] for ask in ranked_asks]
    served = _serve(sorted(bids, key=lambda bid: (-bid.limit_price, bid.time, bid.id)), ladder)
    if not served:
        return Clearing(None, "sbba")
    taken = sum(bid.qty for bid in served)
    marginal = served[-1]
    if taken < len(ladder) and ladder[taken] <= marginal.limit_price:
        return Clearing(ladder[taken], "sbba", _allot(served, ranked_asks))
    winners = served[:-1]
    if not winners:
        return Clearing(None, "sbba")
    sellers = _draw(ranked_asks[:taken], taken - marginal.qty, seed)
    return Clearing(marginal.limit_price, "sbba", _allot(winners, sellers))


def _serve(bids: Iterable[BidOrder], ladder: Sequence[int]) -> list[BidOrder]:
    """The bids, in the given sequence, that fit: enough asks are left and the dearest needed is within the limit."""
    served, taken = [], 0
    for bid in bids:
        needed = taken + bid.qty
        if needed <= len(ladder) and ladder[needed - 1] <= bid.limit_price:
            served.append(bid)
            taken = needed
    return served


def _allot(bids: Sequence[BidOrder], asks: Sequence[AskOrder]) -> dict[str, tuple[str, ...]]:
    """Asks dealt out to the bids in sequence."""
    ids = iter([ask.id for ask in asks])
    return {bid.id: tuple(next(ids) for _ in range(bid.qty)) for bid in bids}


def _draw(asks: Sequence[AskOrder], count: int, seed: bytes) -> list[AskOrder]:
    """The ``count`` asks whose lot ``sha256(seed || id)`` is highest, in the given sequence."""
    by_lot = sorted(asks, key=lambda ask: hashlib.sha256(seed + ask.id.encode()).digest(), reverse=True)
    drawn = {ask.id for ask in by_lot[:count]}
    return [ask for ask in asks if ask.id in drawn]
