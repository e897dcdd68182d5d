"""Orders of a round as published, and their clearing, which anyone can recompute.

A published order has a random name and its rank of arrival. Its id and time would identify the owner. Only the market
stores the owners.
"""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from market.domain.auctions.clearing import AskOrder, BidOrder, Clearing, clear
from market.domain.network import Tier
from market.providers.service import Offer


@dataclass(frozen=True, slots=True)
class Sealed:
    """Book fixed for clearing. ``owners``: ``{"bids": {name: job}, "asks": {name: provider}}``."""

    book: dict[str, Any]
    owners: dict[str, dict[str, str]]
    bid_nodes: int


def seal(bids: Iterable[BidOrder], offers: Iterable[Offer], tier: Tier, fee_bps: int, environment_class: str) -> Sealed:
    """Fix these orders. Together with the seed they determine the clearing."""
    early_bids = sorted(bids, key=lambda bid: (bid.time, bid.id))
    early_offers = sorted(offers, key=lambda offer: (offer.placed_at, offer.ask_id))
    bid_names = {_name(): bid for bid in early_bids}
    ask_names = {_name(): offer for offer in early_offers}
    book = {
        "environment_class": environment_class,
        "reserve_price_wei": str(tier.reserve_price_wei),
        "fee_bps": fee_bps,
        "bids": [
            {"id": name, "nodes": bid.qty, "limit_price_wei": str(bid.limit_price), "arrival": arrival}
            for arrival, (name, bid) in enumerate(bid_names.items())
        ],
        "asks": [
            {"id": name, "min_price_wei": str(offer.min_price_wei), "arrival": arrival}
            for arrival, (name, offer) in enumerate(ask_names.items())
        ],
    }
    owners = {
        "bids": {name: bid.id for name, bid in bid_names.items()},
        "asks": {name: offer.provider for name, offer in ask_names.items()},
    }
    return Sealed(book, owners, sum(bid.qty for bid in early_bids))


def clear_book(book: dict[str, Any], seed: bytes) -> Clearing:
    """Clear a published book."""
    bids = [BidOrder(bid["id"], bid["nodes"], int(bid["limit_price_wei"]), bid["arrival"]) for bid in book["bids"]]
    asks = [AskOrder(ask["id"], int(ask["min_price_wei"]), ask["arrival"]) for ask in book["asks"]]
    return clear(bids, asks, int(book["reserve_price_wei"]), book["fee_bps"], seed)


def _name() -> str:
    return secrets.token_hex(16)
