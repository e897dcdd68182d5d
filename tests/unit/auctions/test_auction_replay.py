"""A replay finds whatever was altered in a published round."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from kit.errors import raises_code

from zoo_compute.audit import auction
from zoo_compute.base.errors import Mismatch, Unreachable
from zoo_protocol.auction import book_hash, commitment, lot_seed
from zoo_protocol.hashing import from_hex, to_hex

BLOCK = "0x" + "cd" * 32


def round_of(fee_bps: int = 500) -> dict[str, Any]:
    orders = {
        "environment_class": "0x" + "ab" * 32,
        "reserve_price_wei": "0",
        "fee_bps": fee_bps,
        "bids": [{"id": f"b{i}", "nodes": 1, "limit_price_wei": str(90 - i), "arrival": i} for i in range(6)],
        "asks": [{"id": f"a{i}", "min_price_wei": str(10 + i), "arrival": i} for i in range(6)],
    }
    secret = b"\x05" * 32
    outcome = auction.clear(auction.Orders.model_validate(orders), lot_seed(secret, from_hex(BLOCK)))
    assert outcome.needs_tie_break
    return {
        "book": "bronze.eu",
        "number": 3,
        "status": "cleared",
        "commitment": to_hex(commitment(secret)),
        "secret": to_hex(secret),
        "book_hash": to_hex(book_hash(orders)),
        "seed_block": 77,
        "seed_block_hash": BLOCK,
        "rule": outcome.rule,
        "price_wei_per_gpu_hour": str(outcome.price),
        "orders": orders,
        "matches": [{"bid": bid, "asks": asks, "placed": True} for bid, asks in outcome.fills.items()],
    }


def test_honest_round_replays() -> None:
    document = round_of()
    done = auction.replay(document, BLOCK)
    assert done.findings == []
    assert (done.computed.price, len(done.computed.fills)) == (85, 5)


def _swap(document: dict[str, Any]) -> None:
    first, second = document["matches"][:2]
    first["asks"], second["asks"] = second["asks"], first["asks"]


def _sell_another(document: dict[str, Any]) -> None:
    sold = {ask for match in document["matches"] for ask in match["asks"]}
    document["matches"][0]["asks"] = [ask["id"] for ask in document["orders"]["asks"] if ask["id"] not in sold][:1]


def _sell_twice(document: dict[str, Any]) -> None:
    document["matches"][0]["asks"] = document["matches"][1]["asks"]


def test_replay_leaves_node_assignment_to_placement() -> None:
    document = round_of()
    _swap(document)
    assert auction.replay(document, BLOCK).findings == []


@pytest.mark.parametrize(
    ("alter", "where"),
    [
        (lambda d: d.update(secret="0x" + "06" * 32), "commitment"),
        (lambda d: d.update(commitment="0x" + "06" * 32), "commitment"),
        (lambda d: d.update(book_hash="0x" + "06" * 32), "book_hash"),
        (lambda d: d["orders"].update(environment_class="0x"), "book_hash"),
        (lambda d: d["orders"]["asks"].pop(), "book_hash"),
        (lambda d: d.update(price_wei_per_gpu_hour="86"), "price"),
        (lambda d: d.update(rule="posted"), "rule"),
        (lambda d: d.update(seed_block=None), "seed_block"),
        (lambda d: d.update(seed_block_hash="0x" + "ce" * 32), "seed_block_hash"),
        (lambda d: d["matches"].pop(), "fill of b4"),
        (lambda d: d["matches"].append({"bid": "b9", "asks": ["a0"], "placed": True}), "fill of b9"),
        (_sell_another, "sellers"),
        (_sell_twice, "sellers"),
    ],
)
def test_altered_field_is_named(alter: Callable[[dict[str, Any]], Any], where: str) -> None:
    document = round_of()
    alter(document)
    assert where in {finding.where for finding in auction.replay(document, BLOCK).findings}


@pytest.mark.parametrize(
    ("alter", "code"),
    [
        (lambda d: d.update(status="closed"), "round-not-cleared"),
        (lambda d: d.pop("orders"), "round-malformed"),
        (lambda d: d.update(secret="0x12"), "round-malformed"),
        (lambda d: d["orders"]["bids"][0].update(nodes="many"), "round-malformed"),
        (lambda d: d["orders"].update(fee_bps=10_000), "round-malformed"),
        (lambda d: d["orders"]["bids"][0].update(nodes=0), "round-malformed"),
    ],
)
def test_uncleared_round_is_refused(alter: Callable[[dict[str, Any]], Any], code: str) -> None:
    document = round_of()
    alter(document)
    with raises_code(Mismatch, code):
        auction.replay(document)


def test_node_without_block_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
        auction.hash_of_block("http://127.0.0.1:1", 5)
    with pytest.raises(Unreachable):
        auction.hash_of_block("no address", 5)
    request = httpx.Request("POST", "http://node")
    monkeypatch.setattr(httpx, "post", lambda *_a, **_k: httpx.Response(200, json={"result": None}, request=request))
    with pytest.raises(Unreachable, match="no block 5"):
        auction.hash_of_block("http://node", 5)
