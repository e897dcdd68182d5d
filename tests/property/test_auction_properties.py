"""Properties of every order book; some are checked for all small books."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import combinations_with_replacement
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from market.auctions.sealed_orders import clear_book, seal
from market.domain.auctions.clearing import AskOrder, BidOrder, Clearing, clear, clear_posted, clear_sbba, gross_ask
from market.domain.money import split, unit_price
from market.domain.network import MAINNET, ZEN
from market.providers.service import Offer
from zoo_compute.audit import auction as client

START = datetime(2026, 1, 1, tzinfo=UTC)
RESERVE = 20
FEE_BPS = 500

Book = tuple[list[BidOrder], list[AskOrder]]

prices = st.integers(0, 100)
seconds = st.integers(0, 5)
seeds = st.binary(min_size=32, max_size=32)


@st.composite
def books(draw: st.DrawFn, *, gangs: bool = True, scale: int = 1) -> Book:
    nodes = st.integers(1, 4) if gangs else st.just(1)
    bid_terms = draw(st.lists(st.tuples(prices, nodes, seconds), max_size=12))
    ask_terms = draw(st.lists(st.tuples(prices, seconds), max_size=20))
    bids = [BidOrder(f"b{i}", q, p * scale, START + timedelta(seconds=t)) for i, (p, q, t) in enumerate(bid_terms)]
    asks = [AskOrder(f"a{i}", p * scale, START + timedelta(seconds=t)) for i, (p, t) in enumerate(ask_terms)]
    return bids, asks


def buyer_gain(result: Clearing, bid: BidOrder) -> int:
    return bid.limit_price - result.price if result.price is not None and bid.id in result.fills else 0


def seller_gain(result: Clearing, ask: AskOrder, fee_bps: int) -> int:
    sold = any(ask.id in won for won in result.fills.values())
    return result.price - gross_ask(ask.limit_price, fee_bps) if result.price is not None and sold else 0


@given(books(), seeds)
def test_gangs_fill_fully_at_one_acceptable_price(book: Book, seed: bytes) -> None:
    bids, asks = book
    result = clear(bids, asks, RESERVE, FEE_BPS, seed)
    limits = {bid.id: bid for bid in bids}
    floors = {ask.id: gross_ask(ask.limit_price, FEE_BPS) for ask in asks}
    sold = [ask for won in result.fills.values() for ask in won]
    assert len(sold) == len(set(sold))
    assert (result.price is None) == (not result.fills)
    if result.price is not None:
        assert result.price >= RESERVE
        assert all(floors[ask] <= result.price for ask in sold)
    for bid_id, won in result.fills.items():
        assert len(won) == limits[bid_id].qty
        assert result.price is not None
        assert limits[bid_id].limit_price >= result.price  # no gang is accepted at a loss


@given(books(scale=ZEN // 10), seeds, st.integers(1_000_000, 10**12), st.integers(1, 50))
def test_money_balances_and_sellers_get_their_price(book: Book, seed: bytes, weight_us: int, units: int) -> None:
    bids, asks = book
    result = clear(bids, asks, RESERVE * ZEN // 10, MAINNET.fee_bps, seed)
    assume(result.price is not None)
    assert result.price is not None
    floors = {ask.id: ask.limit_price for ask in asks}
    for bid_id, won in result.fills.items():
        count = units * len(won)
        gross = unit_price(result.price, weight_us)
        escrow = gross * count + 12_345
        money = split(escrow, gross, count, MAINNET.fee_bps)
        assert money.paid + money.fee + money.refund == escrow
        assert money.fee * 10_000 == money.gross * MAINNET.fee_bps  # nothing is lost or kept by rounding
        limit = next(bid.limit_price for bid in bids if bid.id == bid_id)
        assert money.gross <= limit * weight_us * count // 3_600_000_000
        for ask in won:  # the grid of unit prices, 10,000 wei, is all that a seller's minimum can fall short by
            assert money.paid // count + 10_000 > floors[ask] * weight_us // 3_600_000_000


@given(books(gangs=False), seeds)
def test_only_sbba_excluded_pair_misses_trade(book: Book, seed: bytes) -> None:
    bids, asks = book
    result = clear_sbba(bids, asks, 0, FEE_BPS, seed)
    assume(result.price is not None)
    assert result.price is not None
    sold = {ask for won in result.fills.values() for ask in won}
    assert all(bid.limit_price <= result.price for bid in bids if bid.id not in result.fills)
    cheaper = [ask for ask in asks if ask.id not in sold and gross_ask(ask.limit_price, FEE_BPS) < result.price]
    assert len(cheaper) <= (1 if result.drawn else 0)


@given(books(), seeds, st.randoms())
def test_order_sequence_does_not_matter(book: Book, seed: bytes, random: Random) -> None:
    bids, asks = book
    before = clear(bids, asks, RESERVE, FEE_BPS, seed)
    random.shuffle(bids)
    random.shuffle(asks)
    assert clear(bids, asks, RESERVE, FEE_BPS, seed) == before


@given(books(), seeds, seeds)
def test_tie_break_changes_only_marked_sellers(book: Book, seed: bytes, other: bytes) -> None:
    one, two = (clear(*book, RESERVE, FEE_BPS, lot) for lot in (seed, other))
    assert (one.price, one.rule, list(one.fills), one.drawn) == (two.price, two.rule, list(two.fills), two.drawn)
    if not one.drawn:
        assert one == two


@given(books(), seeds)
def test_client_rule_replays_published_round_fills(book: Book, seed: bytes) -> None:
    bids, asks = book
    offers = [Offer(ask.id, "eu", "class", 4, ask.limit_price, 0, ask.time, ask.id) for ask in asks]  # type: ignore[arg-type]
    tier = replace(MAINNET.tiers[0], reserve_price_wei=RESERVE)
    sealed = seal(bids, offers, tier, FEE_BPS, "class")
    result = clear_book(sealed.book, seed)
    again = client.clear(client.Orders.model_validate(sealed.book), seed)
    assert (again.price, again.rule, again.needs_tie_break) == (result.price, result.rule, result.drawn)
    assert {bid: tuple(won) for bid, won in again.fills.items()} == result.fills
    unsealed = clear(bids, asks, RESERVE, FEE_BPS, seed)  # names and places in the queue change the tie-break at most
    assert result.price == unsealed.price
    assert [sealed.owners["bids"][bid] for bid in result.fills] == list(unsealed.fills)
    if not result.drawn:
        won = [tuple(sealed.owners["asks"][ask] for ask in won) for won in result.fills.values()]
        assert won == list(unsealed.fills.values())


@given(books(gangs=False), seeds, st.data())
def test_better_offer_never_loses_or_moves_own_price(book: Book, seed: bytes, data: st.DataObject) -> None:
    bids, asks = book
    assume(bids and asks)
    before = clear(bids, asks, RESERVE, FEE_BPS, seed)
    bid, ask = data.draw(st.sampled_from(bids)), data.draw(st.sampled_from(asks))
    keener = replace(bid, limit_price=data.draw(st.integers(bid.limit_price, 120)))
    after = clear([keener if one is bid else one for one in bids], asks, RESERVE, FEE_BPS, seed)
    if bid.id in before.fills:
        assert bid.id in after.fills
        assert after.price == before.price
    cheaper = replace(ask, limit_price=data.draw(st.integers(0, ask.limit_price)))
    after = clear(bids, [cheaper if one is ask else one for one in asks], RESERVE, FEE_BPS, seed)
    if any(ask.id in won for won in before.fills.values()):
        assert any(ask.id in won for won in after.fills.values())
        assert after.price == before.price


@given(books(gangs=False), seeds, st.data())
def test_single_node_misreport_gains_nothing(book: Book, seed: bytes, data: st.DataObject) -> None:
    bids, asks = book
    assume(bids and asks)
    honest = clear(bids, asks, RESERVE, FEE_BPS, seed)
    bid, ask = data.draw(st.sampled_from(bids)), data.draw(st.sampled_from(asks))
    misreport = replace(bid, limit_price=data.draw(prices))
    misreported = clear([misreport if one is bid else one for one in bids], asks, RESERVE, FEE_BPS, seed)
    assert buyer_gain(misreported, bid) <= buyer_gain(honest, bid)
    offer = replace(ask, limit_price=data.draw(prices))
    misreported = clear(bids, [offer if one is ask else one for one in asks], RESERVE, FEE_BPS, seed)
    assert seller_gain(misreported, ask, FEE_BPS) <= seller_gain(honest, ask, FEE_BPS)


LOTS = [bytes([lot]) * 32 for lot in range(3)]


@pytest.mark.parametrize(
    ("rule", "side", "levels", "reserve"),
    [
        *((partial(clear_sbba, fee_bps=0, seed=lot), 3, 5, 0) for lot in LOTS),
        (partial(clear_sbba, fee_bps=0, seed=LOTS[0]), 4, 4, 0),
        *((partial(clear_sbba, fee_bps=0, seed=lot), 3, 4, 2) for lot in LOTS),
        (partial(clear_posted, fee_bps=0), 3, 5, 2),
    ],
)
def test_no_misreport_pays_in_small_unit_markets(
    rule: Callable[[Sequence[BidOrder], Sequence[AskOrder], int], Clearing], side: int, levels: int, reserve: int
) -> None:
    """All orders arrive together, so a market is the multiset of its values."""
    sizes = range(1, side + 1)
    for values in (found for size in sizes for found in combinations_with_replacement(range(levels), size)):
        bids = [BidOrder(f"b{i}", 1, value, 0) for i, value in enumerate(values)]
        for costs in (found for size in sizes for found in combinations_with_replacement(range(levels), size)):
            asks = [AskOrder(f"a{i}", cost, 0) for i, cost in enumerate(costs)]
            honest = rule(bids, asks, reserve)
            for index, bid in enumerate(bids):
                truth = buyer_gain(honest, bid)
                for report in range(levels):
                    reported = [*bids[:index], replace(bid, limit_price=report), *bids[index + 1 :]]
                    assert buyer_gain(rule(reported, asks, reserve), bid) <= truth
            for index, ask in enumerate(asks):
                truth = seller_gain(honest, ask, 0)
                for report in range(levels):
                    offered = [*asks[:index], replace(ask, limit_price=report), *asks[index + 1 :]]
                    assert seller_gain(rule(bids, offered, reserve), ask, 0) <= truth
