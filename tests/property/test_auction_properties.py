"""What must hold for every book."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

from hypothesis import assume, given
from hypothesis import strategies as st

from market.domain.auction import AskOrder, BidOrder, clear, gross_ask

START = datetime(2026, 1, 1, tzinfo=UTC)
RESERVE = 20
FEE_BPS = 500

prices = st.integers(0, 100)
seconds = st.integers(0, 5)
seeds = st.binary(min_size=32, max_size=32)


@st.composite
def books(draw: st.DrawFn, *, gangs: bool = True) -> tuple[list[BidOrder], list[AskOrder]]:
    nodes = st.integers(1, 4) if gangs else st.just(1)
    bid_terms = draw(st.lists(st.tuples(prices, nodes, seconds), max_size=12))
    ask_terms = draw(st.lists(st.tuples(prices, seconds), max_size=20))
    bids = [BidOrder(f"b{i}", q, p, START + timedelta(seconds=t)) for i, (p, q, t) in enumerate(bid_terms)]
    return bids, [AskOrder(f"a{i}", p, START + timedelta(seconds=t)) for i, (p, t) in enumerate(ask_terms)]


@given(books(), seeds)
def test_nobody_trades_against_their_limit(book: tuple[list[BidOrder], list[AskOrder]], seed: bytes) -> None:
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
        assert limits[bid_id].limit_price >= result.price


@given(books(), seeds, st.randoms())
def test_the_sequence_of_orders_does_not_matter(
    book: tuple[list[BidOrder], list[AskOrder]], seed: bytes, random: Random
) -> None:
    bids, asks = book
    before = clear(bids, asks, RESERVE, FEE_BPS, seed)
    random.shuffle(bids)
    random.shuffle(asks)
    assert clear(bids, asks, RESERVE, FEE_BPS, seed) == before


@given(books(gangs=False), seeds, st.data())
def test_a_buyer_of_one_node_gains_nothing_by_lying(
    book: tuple[list[BidOrder], list[AskOrder]], seed: bytes, data: st.DataObject
) -> None:
    bids, asks = book
    assume(bids)
    liar = data.draw(st.sampled_from(bids))
    lie = replace(liar, limit_price=data.draw(prices))

    def gain(orders: list[BidOrder]) -> int:
        result = clear(orders, asks, RESERVE, FEE_BPS, seed)
        return liar.limit_price - result.price if result.price is not None and liar.id in result.fills else 0

    assert gain([lie if bid is liar else bid for bid in bids]) <= gain(bids)


@given(books(gangs=False), seeds, st.data())
def test_a_seller_gains_nothing_by_lying(
    book: tuple[list[BidOrder], list[AskOrder]], seed: bytes, data: st.DataObject
) -> None:
    bids, asks = book
    assume(asks)
    liar = data.draw(st.sampled_from(asks))
    lie = replace(liar, limit_price=data.draw(prices))

    def gain(orders: list[AskOrder]) -> int:
        result = clear(bids, orders, RESERVE, FEE_BPS, seed)
        sold = any(liar.id in won for won in result.fills.values())
        return result.price - gross_ask(liar.limit_price, FEE_BPS) if result.price is not None and sold else 0

    assert gain([lie if ask is liar else ask for ask in asks]) <= gain(asks)
