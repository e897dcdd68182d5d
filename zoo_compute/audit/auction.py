"""Independent replay of an auction round from the market's published data.

It implements ``docs/auctions.md`` a second time, for readability: the market's own code would repeat its errors.
"""

import hashlib
from dataclasses import dataclass
from typing import Annotated, Any

import httpx
from pydantic import Field, ValidationError

from zoo_compute.base.errors import Finding, Mismatch, Unreachable
from zoo_compute.base.models import Answer, Wei
from zoo_protocol.auction import book_hash, commitment, lot_seed
from zoo_protocol.hashing import from_hex, to_hex

_THICK = 5
_BPS = 10_000


class Bid(Answer):
    """Request for a gang of nodes at a maximum price in wei per GPU-hour."""

    id: str
    nodes: Annotated[int, Field(ge=1)]
    limit_price_wei: Wei
    arrival: int


class Ask(Answer):
    """Offer of a node at a minimum price in wei per GPU-hour, net of the fee."""

    id: str
    min_price_wei: Wei
    arrival: int


class Orders(Answer):
    """All orders of an auction round."""

    reserve_price_wei: Wei
    fee_bps: Annotated[int, Field(ge=0, lt=_BPS)]
    bids: list[Bid]
    asks: list[Ask]


class Match(Answer):
    """Bid with the asks that serve it."""

    bid: str
    asks: list[str]
    placed: bool


class Round(Answer):
    """Cleared auction round."""

    book: str
    number: int
    commitment: str
    secret: str
    book_hash: str
    seed_block: int | None
    seed_block_hash: str | None
    rule: str
    price_wei_per_gpu_hour: Wei
    orders: Orders
    matches: list[Match]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of clearing. ``needs_tie_break``: the random tie-break decided which sellers trade."""

    rule: str
    price: int | None
    fills: dict[str, list[str]]
    needs_tie_break: bool = False


@dataclass(frozen=True, slots=True)
class Replay:
    """Published auction round, its recomputed outcome, and the differences."""

    published: Round
    computed: Outcome
    findings: list[Finding]


def replay(document: dict[str, Any], block_hash: str | None = None) -> Replay:
    """Verify a cleared round in the form of ``GET /v1/auctions/{book}/rounds/{number}``.

    Args:
        block_hash: hash of the seed's block from a node that the caller trusts; None skips this check.

    Raises:
        Mismatch: the round is not cleared yet, its orders are deleted, or the document is malformed.
    """
    if document.get("status") != "cleared":
        raise Mismatch(
            "round-not-cleared",
            f"status of round {document.get('number')} of {document.get('book')} is {document.get('status')}",
            remedy="Choose an earlier round, or wait: orders are sealed until the round is cleared.",
        )
    if document.get("orders", "") is None:
        raise Mismatch(
            "orders-gone",
            f"the market has deleted the orders of round {document.get('number')} of {document.get('book')}",
            remedy="Prices and matches remain. Keep a copy of a round to replay it later.",
        )
    try:
        published = Round.model_validate(document)
        secret, hash_in_use = from_hex(published.secret), bytes(32)
        if published.seed_block_hash is not None:
            hash_in_use = from_hex(published.seed_block_hash)
        computed = clear(published.orders, lot_seed(secret, hash_in_use))
        hash_of_orders = to_hex(book_hash(document["orders"]))
    except (ValidationError, ValueError) as error:
        raise Mismatch("round-malformed", f"the document is not a cleared round: {error}") from error
    findings = [
        *_compare("commitment", to_hex(commitment(secret)), published.commitment),
        *_compare("book_hash", hash_of_orders, published.book_hash),
        *_compare("rule", computed.rule, published.rule),
        *_compare("price", computed.price, published.price_wei_per_gpu_hour),
    ]
    if computed.needs_tie_break and (published.seed_block is None or published.seed_block_hash is None):
        findings += _compare("seed_block", "a block for the tie-break", "none")
    if block_hash is not None:
        findings += _compare("seed_block_hash", block_hash, published.seed_block_hash)
    # The rule decides buyers and sellers. Placement decides which sold node serves which buyer.
    bought = {match.bid: len(match.asks) for match in published.matches}
    for bid in dict.fromkeys([*computed.fills, *bought]):
        findings += _compare(f"fill of {bid}", len(computed.fills.get(bid, [])), bought.get(bid, 0))
    sold = sorted(ask for match in published.matches for ask in match.asks)
    findings += _compare("sellers", sorted(ask for asks in computed.fills.values() for ask in asks), sold)
    return Replay(published, computed, findings)


def clear(orders: Orders, seed: bytes) -> Outcome:
    """Clear an order book by the published rule."""

    def cost(ask: Ask) -> int:
        return -(-ask.min_price_wei * _BPS // (_BPS - orders.fee_bps))

    reserve = orders.reserve_price_wei
    if min(len(orders.bids), len(orders.asks)) < _THICK:
        queue = sorted(orders.bids, key=lambda bid: bid.arrival)
        willing = sorted((ask for ask in orders.asks if cost(ask) <= reserve), key=lambda ask: ask.arrival)
        served = _greedy(queue, [reserve] * len(willing))
        return Outcome("posted", reserve if served else None, _assign(served, [ask.id for ask in willing]))

    costs = {ask.id: max(cost(ask), reserve) for ask in orders.asks}
    supply = sorted(orders.asks, key=lambda ask: (costs[ask.id], ask.arrival))
    served = _greedy(
        sorted(orders.bids, key=lambda bid: (-bid.limit_price_wei, bid.arrival)), [costs[ask.id] for ask in supply]
    )
    if not served:
        return Outcome("sbba", None, {})
    needed = sum(bid.nodes for bid in served)
    sellers, last = [ask.id for ask in supply[:needed]], served[-1]
    if needed < len(supply) and costs[supply[needed].id] <= last.limit_price_wei:
        return Outcome("sbba", costs[supply[needed].id], _assign(served, sellers))
    if len(served) == 1:
        return Outcome("sbba", None, {})
    ranked = sorted(sellers, key=lambda ask_id: hashlib.sha256(seed + ask_id.encode()).digest())
    losers = ranked[: last.nodes]
    winners = [ask_id for ask_id in sellers if ask_id not in losers]
    return Outcome("sbba", last.limit_price_wei, _assign(served[:-1], winners), needs_tie_break=True)


def hash_of_block(rpc_url: str, number: int) -> str:
    """Return the hash of a block from an Ethereum node.

    Raises:
        Unreachable: the node does not answer, or does not have the block.
    """
    call = {"jsonrpc": "2.0", "id": 1, "method": "eth_getBlockByNumber", "params": [hex(number), False]}
    try:
        found = httpx.post(rpc_url, json=call, timeout=30).raise_for_status().json()["result"]["hash"]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
        raise Unreachable(
            "chain-unreachable", f"{rpc_url} gives no block {number}: {error}", remedy="Check the RPC address."
        ) from error
    return str(found)


def _greedy(bids: list[Bid], prices: list[int]) -> list[Bid]:
    """Return the bids filled by the cheapest asks within their limit, in order."""
    served: list[Bid] = []
    taken = 0
    for bid in bids:
        wanted = prices[taken : taken + bid.nodes]
        if len(wanted) == bid.nodes and max(wanted) <= bid.limit_price_wei:
            served.append(bid)
            taken += bid.nodes
    return served


def _assign(bids: list[Bid], ask_ids: list[str]) -> dict[str, list[str]]:
    fills, assigned = {}, 0
    for bid in bids:
        fills[bid.id] = ask_ids[assigned : assigned + bid.nodes]
        assigned += bid.nodes
    return fills


def _compare(where: str, expected: object, found: object) -> list[Finding]:
    return [] if expected == found else [Finding("auction-mismatch", where, str(expected), str(found))]
