"""The clearing rule against an implementation from its paper's statement.

Segal-Halevi, Hassidim and Aumann (2016), arXiv 1607.05139. Buyers' values are b1 >= b2 >= ...
Sellers' values are s1 <= s2 <= ... Of them, k deals are efficient: b_k >= s_k and b_{k+1} < s_{k+1}.
A missing trader counts as infinitely bad.

* s_{k+1} <= b_k: the price is s_{k+1}, and the first k buyers trade with the first k sellers.
* otherwise: the price is b_k, and the first k - 1 buyers trade with k - 1 random sellers of the first k.

The paper knows single units only, and neither fee nor reserve.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st
from kit.profile import examples

from market.domain.auctions.clearing import AskOrder, BidOrder, clear_sbba

SEED = bytes(range(32))


@dataclass(frozen=True)
class Prescribed:
    """Prices and trades that the paper prescribes; traders are named by their place."""

    price: float
    trades: int
    buyers: list[int]
    eligible: set[int]


def paper(values: Sequence[int], costs: Sequence[int]) -> Prescribed:
    buyers = sorted(range(len(values)), key=lambda i: -values[i])  # equals stay in the given sequence
    sellers = sorted(range(len(costs)), key=lambda i: costs[i])
    b = [inf, *(values[i] for i in buyers), -inf]  # b[1] is b1, and the one after the last is infinitely bad
    s = [-inf, *(costs[i] for i in sellers), inf]
    k = 0
    while k + 1 < min(len(b), len(s)) - 1 and b[k + 1] >= s[k + 1]:
        k += 1
    if k == 0:
        return Prescribed(inf, 0, [], set())
    if s[k + 1] <= b[k]:
        return Prescribed(s[k + 1], k, buyers[:k], set(sellers[:k]))
    return Prescribed(b[k], k - 1, buyers[: k - 1], set(sellers[:k]))


def agree(values: Sequence[int], costs: Sequence[int], seed: bytes) -> None:
    expected = paper(values, costs)
    result = clear_sbba(
        [BidOrder(f"b{i}", 1, value, i) for i, value in enumerate(values)],
        [AskOrder(f"a{i}", cost, i) for i, cost in enumerate(costs)],
        reserve=0,
        fee_bps=0,
        seed=seed,
    )
    sold = [int(ask[1:]) for won in result.fills.values() for ask in won]
    assert result.price == (expected.price if expected.trades else None), (values, costs)
    assert [int(bid[1:]) for bid in result.fills] == expected.buyers, (values, costs)
    assert all(len(won) == 1 for won in result.fills.values())
    assert len(sold) == len(set(sold)) == expected.trades, (values, costs)
    assert set(sold) <= expected.eligible, (values, costs)
    assert result.drawn == (0 < expected.trades < len(expected.eligible)), (values, costs)


def test_every_small_market_clears_as_in_paper() -> None:
    """Up to four traders a side with values 0 to 4, as multisets: 15,625 markets."""
    sides = [values for size in range(1, 5) for values in combinations_with_replacement(range(5), size)]
    for values, costs in product(sides, sides):
        agree(values, costs, SEED)


def test_arrival_order_breaks_ties_as_in_paper() -> None:
    """All sequences, not only sorted ones, of up to three traders a side with values 0 to 2."""
    sides = [values for size in range(1, 4) for values in product(range(3), repeat=size)]
    for values, costs in product(sides, sides):
        agree(values, costs, SEED)


prices = st.lists(st.integers(0, 60), min_size=1, max_size=60)


@settings(max_examples=examples(60, long=500))
@given(prices, prices, st.binary(min_size=32, max_size=32))
def test_larger_markets_clear_as_in_paper(values: list[int], costs: list[int], seed: bytes) -> None:
    agree(values, costs, seed)


def test_manual_examples_clear_as_expected() -> None:
    assert paper([9], [4]) == Prescribed(9, 0, [], {0})  # no trader is left to set the price
    assert paper([9], [3, 4]) == Prescribed(4, 1, [0], {0})
    assert paper([9, 8], [3, 4]) == Prescribed(8, 1, [0], {0, 1})
    assert paper([9, 8], [3, 4, 8]) == Prescribed(8, 2, [0, 1], {0, 1})
    assert paper([3], [4]).trades == 0


def test_each_seller_is_excluded_equally_often() -> None:
    """5,000 fixed seeds: chi-square against uniform, 0.1 % bound of 4 degrees of freedom."""
    bids = [BidOrder(f"b{i}", 1, 100, i) for i in range(5)]
    asks = [AskOrder(f"node-{i}", 10 * i, i) for i in range(5)]
    left_out: Counter[str] = Counter()
    draws = 5_000
    for number in range(draws):
        result = clear_sbba(bids, asks, 0, 0, hashlib.sha256(number.to_bytes(4, "big")).digest())
        assert result.drawn
        sold = {ask for won in result.fills.values() for ask in won}
        left_out.update({ask.id for ask in asks} - sold)
    expected = draws / len(asks)
    assert left_out.total() == draws
    assert sum((left_out[ask.id] - expected) ** 2 / expected for ask in asks) < 18.47
