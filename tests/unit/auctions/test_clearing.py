"""The clearing rule, case by case. Prices are whole units; there is no fee by default."""

import hashlib
from datetime import UTC, datetime, timedelta

import pytest

from market.domain.auctions.clearing import AskOrder, BidOrder, Clearing, clear, gross_ask

START = datetime(2026, 1, 1, tzinfo=UTC)
SEED = b"\x07" * 32


def bids(*orders: tuple[int, int]) -> list[BidOrder]:
    return [BidOrder(f"b{i}", qty, limit, START + timedelta(seconds=i)) for i, (limit, qty) in enumerate(orders)]


def asks(*prices: int) -> list[AskOrder]:
    return [AskOrder(f"a{i}", price, START + timedelta(seconds=i)) for i, price in enumerate(prices)]


def test_next_ask_sets_price_when_affordable() -> None:
    book = bids((90, 1), (80, 1), (70, 1), (60, 1), (20, 1)), asks(10, 20, 30, 40, 55)
    result = clear(*book, reserve=0, fee_bps=0, seed=SEED)
    assert result == Clearing(55, "sbba", {"b0": ("a0",), "b1": ("a1",), "b2": ("a2",), "b3": ("a3",)})


def test_last_buyer_otherwise_sets_price_and_leaves() -> None:
    book = bids((90, 1), (80, 1), (70, 1), (50, 1), (20, 1)), asks(10, 20, 30, 40, 55)
    result = clear(*book, reserve=0, fee_bps=0, seed=SEED)
    assert result.price == 50
    assert list(result.fills) == ["b0", "b1", "b2"]
    sold = {ask for won in result.fills.values() for ask in won}
    lots = {f"a{i}": hashlib.sha256(SEED + f"a{i}".encode()).digest() for i in range(4)}
    assert lots.keys() - sold == {min(lots, key=lambda ask: lots[ask])}
    excluded = set()
    for fill in (clear(*book, 0, 0, bytes([s]) * 32).fills for s in range(32)):
        excluded |= lots.keys() - {ask for won in fill.values() for ask in won}
    assert excluded == lots.keys()  # the random tie-break ignores rank


def test_lone_buyer_in_thick_book_cannot_set_price() -> None:
    result = clear(bids((90, 1), (5, 1), (4, 1), (3, 1), (2, 1)), asks(10, 95, 96, 97, 98), 0, 0, SEED)
    assert result == Clearing(None, "sbba", {})


def test_gang_gets_all_or_none_and_smaller_continue() -> None:
    book = bids((90, 3), (85, 4), (80, 1), (10, 1), (9, 1)), asks(10, 10, 10, 10, 60)
    result = clear(*book, reserve=0, fee_bps=0, seed=SEED)
    assert result.price == 60
    assert result.fills == {"b0": ("a0", "a1", "a2"), "b2": ("a3",)}


@pytest.mark.parametrize(("bid_count", "ask_count"), [(4, 5), (5, 4), (1, 8)])
def test_thin_book_trades_at_reserve_by_arrival(bid_count: int, ask_count: int) -> None:
    thin = bids(*[(100 + i, 1) for i in range(bid_count)])
    result = clear(thin, asks(*[10] * ask_count), reserve=40, fee_bps=0, seed=SEED)
    assert result.rule == "posted"
    assert result.price == 40
    trades = min(bid_count, ask_count)
    assert result.fills == {f"b{i}": (f"a{i}",) for i in range(trades)}


def test_limit_below_reserve_never_trades() -> None:
    thin = clear(bids((39, 1)), asks(1), reserve=40, fee_bps=0, seed=SEED)
    assert thin == Clearing(None, "posted", {})
    thick = clear(bids(*[(39, 1)] * 6), asks(*[1] * 6), reserve=40, fee_bps=0, seed=SEED)
    assert thick == Clearing(None, "sbba", {})


def test_thick_book_price_is_at_least_reserve() -> None:
    result = clear(bids(*[(90, 1)] * 5), asks(*[1] * 6), reserve=40, fee_bps=0, seed=SEED)
    assert result.price == 40
    assert len(result.fills) == 5


def test_ask_counts_with_fee_on_top() -> None:
    assert gross_ask(95, 500) == 100
    assert gross_ask(96, 500) == 102  # rounded up: a fee of 5 % leaves at least 96
    assert not clear(bids((100, 1)), asks(96), reserve=100, fee_bps=500, seed=SEED).fills
    assert clear(bids((100, 1)), asks(95), reserve=100, fee_bps=500, seed=SEED).fills


def test_equal_orders_rank_by_time_then_id() -> None:
    twins = [BidOrder(name, 1, 50, START) for name in ("z", "a")]
    assert list(clear(twins, asks(1), reserve=40, fee_bps=0, seed=SEED).fills) == ["a"]
    late = [BidOrder("a", 1, 50, START + timedelta(seconds=1)), BidOrder("z", 1, 50, START)]
    assert list(clear(late, asks(1), reserve=40, fee_bps=0, seed=SEED).fills) == ["z"]


def test_empty_side_trades_nothing() -> None:
    assert clear([], asks(1), 1, 0, SEED).price is None
    assert clear(bids((1, 1)), [], 1, 0, SEED).price is None
