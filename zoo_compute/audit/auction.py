"""Repeat the clearing of an auction round from what the market published of it.

The rule is written here once more, from its statement in ``docs/auctions.md`` and for the eye instead of for speed: a
replay by the market's own code would repeat its mistakes too.
"""

import hashlib
from dataclasses import dataclass
from typing import Annotated, Any

import httpx
from pydantic import Field, ValidationError

from zoo_compute.audit.finding import Finding
from zoo_compute.base.errors import Mismatch, Unreachable
from zoo_compute.base.models import Answer, Wei
from zoo_protocol.auction import book_hash, commitment, lot_seed
from zoo_protocol.hashing import from_hex, to_hex

_THICK = 5


_BPS = 10_000


class Bid(Answer):
    """A gang of nodes at no more than a limit in wei per GPU-hour."""

    id: str
    nodes: Annotated[int, Field(ge=1)]
    limit_price_wei: Wei
    arrival: int


class Ask(Answer):
    """A node at no less than a price in wei per GPU-hour, net of the fee."""

    id: str
    min_price_wei: Wei
    arrival: int


class Orders(Answer):
    """All orders of a round."""

    reserve_price_wei: Wei
    fee_bps: Annotated[int, Field(ge=0, lt=_BPS)]
    bids: list[Bid]
    asks: list[Ask]


class Match(Answer):
    """A bid and the asks that serve it."""

    bid: str
    asks: list[str]
    placed: bool


class Round(Answer):
    """A cleared round."""

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
    """What a round's orders lead to. ``needs_lot``: the seed decided which sellers trade."""

    rule: str
    price: int | None
    fills: dict[str, list[str]]
    needs_lot: bool = False


@dataclass(frozen=True, slots=True)
class Replay:
    """A round as the market published it, as it was computed again, and all in which the two differ."""

    published: Round
    computed: Outcome
    findings: list[Finding]


def replay(document: dict[str, Any], block_hash: str | None = None) -> Replay:
    """Check a cleared round as ``GET /v1/auctions/{book}/rounds/{number}`` gives it.

    Args:
        block_hash: hash of the seed's block according to a node that the caller trusts; None leaves that unchecked.

    Raises:
        Mismatch: the round is not cleared yet, or what is published is no round.
    """
    if document.get("status") != "cleared":
        raise Mismatch(
            "round-not-cleared",
            f"round {document.get('number')} of {document.get('book')} is {document.get('status')}",
            remedy="Its orders are sealed until it is cleared; ask for an earlier round, or again later.",
        )
    if document.get("orders", "") is None:
        raise Mismatch(
            "orders-gone",
            f"the market keeps the orders of round {document.get('number')} of {document.get('book')} no longer",
            remedy="Prices and matches stay; who wants to repeat a clearing later keeps a copy of the round.",
        )
    try:
        published = Round.model_validate(document)
        secret, hash_in_use = from_hex(published.secret), bytes(32)
        if published.seed_block_hash is not None:
            hash_in_use = from_hex(published.seed_block_hash)
        computed = clear(published.orders, lot_seed(secret, hash_in_use))
        hash_of_orders = to_hex(book_hash(document["orders"]))
    except (ValidationError, ValueError) as error:
        raise Mismatch("round-malformed", f"what the market published is no cleared round: {error}") from error
    findings = [
        *_compare("commitment", to_hex(commitment(secret)), published.commitment),
        *_compare("book_hash", hash_of_orders, published.book_hash),
        *_compare("rule", computed.rule, published.rule),
        *_compare("price", computed.price, published.price_wei_per_gpu_hour),
    ]
    if computed.needs_lot and (published.seed_block is None or published.seed_block_hash is None):
        findings += _compare("seed_block", "a block for the lot", "none")
    if block_hash is not None:
        findings += _compare("seed_block_hash", block_hash, published.seed_block_hash)
    # The rule says who buys and who sells. Which of the nodes sold goes to which buyer is up to placement.
    bought = {match.bid: len(match.asks) for match in published.matches}
    for bid in dict.fromkeys([*computed.fills, *bought]):
        findings += _compare(f"fill of {bid}", len(computed.fills.get(bid, [])), bought.get(bid, 0))
    sold = sorted(ask for match in published.matches for ask in match.asks)
    findings += _compare("sellers", sorted(ask for asks in computed.fills.values() for ask in asks), sold)
    return Replay(published, computed, findings)


def clear(orders: Orders, seed: bytes) -> Outcome:
    """The clearing of a book by the published rule."""

    def cost(ask: Ask) -> int:
        return -(-ask.min_price_wei * _BPS // (_BPS - orders.fee_bps))

    reserve = orders.reserve_price_wei
    if min(len(orders.bids), len(orders.asks)) < _THICK:
        queue = sorted(orders.bids, key=lambda bid: bid.arrival)
        willing = sorted((ask for ask in orders.asks if cost(ask) <= reserve), key=lambda ask: ask.arrival)
        served = _greedy(queue, [reserve] * len(willing))
        return Outcome("posted", reserve if served else None, _deal(served, [ask.id for ask in willing]))

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
        return Outcome("sbba", costs[supply[needed].id], _deal(served, sellers))
    if len(served) == 1:
        return Outcome("sbba", None, {})
    lots = sorted(sellers, key=lambda ask_id: hashlib.sha256(seed + ask_id.encode()).digest())
    losers = lots[: last.nodes]
    winners = [ask_id for ask_id in sellers if ask_id not in losers]
    return Outcome("sbba", last.limit_price_wei, _deal(served[:-1], winners), needs_lot=True)


def hash_of_block(rpc_url: str, number: int) -> str:
    """Hash of a block as an Ethereum node gives it.

    Raises:
        Unreachable: the node does not answer, or does not have the block.
    """
    call = {"jsonrpc": "2.0", "id": 1, "method": "eth_getBlockByNumber", "params": [hex(number), False]}
    try:
        found = httpx.post(rpc_url, json=call, timeout=30).raise_for_status().json()["result"]["hash"]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
        raise Unreachable(
            "chain-unreachable", f"{rpc_url} gives no block {number}: {error}", remedy="Check the address given as RPC."
        ) from error
    return str(found)


def _greedy(bids: list[Bid], ladder: list[int]) -> list[Bid]:
    """The bids that get all their nodes, in turn, from the cheapest asks left, none of them above the bid's limit."""
    served: list[Bid] = []
    taken = 0
    for bid in bids:
        wanted = ladder[taken : taken + bid.nodes]
        if len(wanted) == bid.nodes and max(wanted) <= bid.limit_price_wei:
            served.append(bid)
            taken += bid.nodes
    return served


def _deal(bids: list[Bid], ask_ids: list[str]) -> dict[str, list[str]]:
    """The asks in sequence, to the bids in sequence."""
    fills, dealt = {}, 0
    for bid in bids:
        fills[bid.id] = ask_ids[dealt : dealt + bid.nodes]
        dealt += bid.nodes
    return fills


def _compare(where: str, expected: object, found: object) -> list[Finding]:
    return [] if expected == found else [Finding("auction-mismatch", where, str(expected), str(found))]
