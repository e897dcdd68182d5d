"""Clearing speed of an order book relative to sorting, and its share of the gain from trade.

Speed: ``market.domain.auctions.clearing`` clears one book of 100,000 orders in one process; a third are bids of one to
four nodes. The peer is ``sorted`` over the same orders by the clearing's own keys, alternately in one run.

Efficiency: equal numbers of unit bids and asks with independent uniform values. The value is the traders' gain as a
share of the largest possible, without fee and reserve, so that only the rule loses gain. Books without a possible gain
are excluded.
"""

from random import Random

from benchmarks.report import Row, progress, row, run, timed
from market.domain.auctions.clearing import AskOrder, BidOrder, clear
from market.domain.network import MAINNET, ZEN

ORDERS = 100_000
TRADERS = (5, 10, 100)
RESERVE = MAINNET.tiers[0].reserve_price_wei

_Book = tuple[list[BidOrder], list[AskOrder]]


def measure(quick: bool) -> list[Row]:
    """Return all rows."""
    seeds, books = (1, 20) if quick else (7, 1_000)
    rates, ratios = [], []
    for seed in range(seeds):
        progress(f"clearing {ORDERS:,} orders, seed {seed}")
        bids, asks = _crowd(Random(seed))
        _, clearing = timed(lambda: clear(bids, asks, RESERVE, MAINNET.fee_bps, bytes(32)), 3)  # noqa: B023  # called here
        _, sorting = timed(lambda: _sort(bids, asks), 3)  # noqa: B023
        rates.append(ORDERS / clearing)
        ratios.append(clearing / sorting)
    return [
        row("orders_per_second_100000", "orders/s", rates, "a third of them bids, of 1 to 4 nodes"),
        row("ratio_to_sort", "x", ratios, "clearing to sorting the same orders"),
        *(_efficiency(traders, seeds, books) for traders in TRADERS),
    ]


def _crowd(random: Random) -> _Book:
    bids = [
        BidOrder(f"0x{random.getrandbits(256):064x}", random.randint(1, 4), random.randint(2 * ZEN, 10 * ZEN), second)
        for second in range(ORDERS // 3)
    ]
    asks = [
        AskOrder(f"0x{random.getrandbits(256):064x}", random.randint(ZEN, 8 * ZEN), second)
        for second in range(ORDERS - len(bids))
    ]
    return bids, asks


def _sort(bids: list[BidOrder], asks: list[AskOrder]) -> None:
    sorted(bids, key=lambda bid: (-bid.limit_price, bid.time, bid.id))
    sorted(asks, key=lambda ask: (ask.limit_price, ask.time, ask.id))


def _efficiency(traders: int, seeds: int, books: int) -> Row:
    progress(f"efficiency of {traders} traders a side")
    means = []
    for seed in range(seeds):
        random = Random(seed)
        shares = [share for _ in range(books) if (share := _share(random, traders)) is not None]
        means.append(sum(shares) / len(shares))
    return row(f"efficiency_{traders}", "share", means, f"mean of {books:,} books a seed")


def _share(random: Random, traders: int) -> float | None:
    """Return the traders' gain as a share of the optimum in a random book; None without gain."""
    values = sorted((random.randint(0, ZEN) for _ in range(traders)), reverse=True)
    costs = sorted(random.randint(0, ZEN) for _ in range(traders))
    optimum = sum(max(0, value - cost) for value, cost in zip(values, costs, strict=True))
    if optimum == 0:
        return None
    bids = [BidOrder(f"b{i}", 1, value, i) for i, value in enumerate(values)]
    asks = [AskOrder(f"a{i}", cost, i) for i, cost in enumerate(costs)]
    fills = clear(bids, asks, 0, 0, random.randbytes(32)).fills
    gain = sum(values[int(bid[1:])] for bid in fills) - sum(costs[int(ask[1:])] for (ask,) in fills.values())
    return gain / optimum


if __name__ == "__main__":
    run("auction", measure)
