"""The call market in operation: a book per tier, cleared when its round is due.

A round gathers orders for at least the auction interval, and from then on clears as soon as somebody can trade; a
round in which nobody can stays open, so only clearings with trades are recorded. The seed of the lot is drawn when
the round opens, its hash is public at once, the seed itself after the clearing.

All nodes of a job must be of one environment class, because replays compare bits within a class. So a round clears
the asks of one class; which class comes first rotates with the round's number.
"""

import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from market.auctions import repository
from market.auctions.errors import RoundNotFound
from market.auctions.models import AuctionRound
from market.db.session import Database
from market.domain.auction import AskOrder, BidOrder, Clearing, clear
from market.domain.network import NetworkParameters, Tier
from market.jobs import service as jobs
from market.providers import service as providers
from market.providers.service import Offer
from market.settings import Settings
from zoo_protocol.hashing import from_hex, sha256, to_hex


def clear_due(database: Database, settings: Settings, network: NetworkParameters, now: datetime) -> int:
    """Clear the book of every tier whose round is due. Returns how many jobs were matched."""
    matched = 0
    for tier in network.tiers:
        with database.transaction() as session:
            matched += _clear_tier(session, settings, network, tier, now)
    return matched


def _clear_tier(session: Session, settings: Settings, network: NetworkParameters, tier: Tier, now: datetime) -> int:
    auction = repository.lock_newest(session, tier.id)
    if auction is None:
        _open_round(session, tier.id, 0, now, settings.auction_interval_seconds)
        return 0
    if auction.closes_at > now:
        return 0
    bids = jobs.open_bids(session, tier.id, now)
    busy = jobs.busy_providers(session)
    standing = providers.open_offers(session, tier.id, now, settings.heartbeat_timeout_seconds)
    free = {offer.ask_id: offer for offer in standing if offer.provider not in busy}
    for environment_class in _rotation(free.values(), auction.number):
        asks = [
            AskOrder(offer.ask_id, offer.min_price_wei, offer.placed_at)
            for offer in free.values()
            if offer.environment_class == environment_class
        ]
        clearing = clear(bids, asks, tier.reserve_price_wei, network.fee_bps, from_hex(auction.seed))
        if clearing.price is None:
            continue
        placed = [
            job_id
            for job_id, ask_ids in clearing.fills.items()
            if jobs.assign(
                session,
                job_id,
                clearing.price,
                auction.id,
                [free[ask_id].provider for ask_id in ask_ids],
                environment_class,
            )
        ]
        _record(auction, clearing, placed, _book(bids, asks, tier, network.fee_bps, environment_class), now)
        _open_round(session, tier.id, auction.number + 1, now, settings.auction_interval_seconds)
        return len(placed)
    return 0


def _rotation(offers: Iterable[Offer], number: int) -> list[str]:
    """The environment classes on offer, each round beginning with the next one."""
    classes = sorted({offer.environment_class for offer in offers})
    first = number % len(classes) if classes else 0
    return classes[first:] + classes[:first]


def _book(
    bids: list[BidOrder], asks: list[AskOrder], tier: Tier, fee_bps: int, environment_class: str
) -> dict[str, object]:
    """Everything, besides the seed, that the clearing followed from."""
    return {
        "environment_class": environment_class,
        "reserve_price_wei": str(tier.reserve_price_wei),
        "fee_bps": fee_bps,
        "bids": [
            {"id": bid.id, "nodes": bid.qty, "limit_price_wei": str(bid.limit_price), "time": bid.time.isoformat()}
            for bid in bids
        ],
        "asks": [{"id": ask.id, "min_price_wei": str(ask.limit_price), "time": ask.time.isoformat()} for ask in asks],
    }


def _record(
    auction: AuctionRound, clearing: Clearing, placed: list[str], book: dict[str, object], now: datetime
) -> None:
    """Close the round. A match is not ``placed`` if its job or a node left the market in the same instant."""
    auction.status = "cleared"
    auction.cleared_at = now
    auction.price_wei = clearing.price
    auction.rule = clearing.rule
    auction.book = book
    auction.matches = [
        {"bid": job_id, "asks": list(ask_ids), "placed": job_id in placed} for job_id, ask_ids in clearing.fills.items()
    ]


def _open_round(session: Session, tier_id: int, number: int, now: datetime, interval_seconds: float) -> None:
    seed = secrets.token_bytes(32)
    repository.insert_round(
        session,
        tier_id=tier_id,
        number=number,
        seed=to_hex(seed),
        seed_hash=to_hex(sha256(seed)),
        status="open",
        closes_at=now + timedelta(seconds=interval_seconds),
        book={},
        matches=[],
    )


def get_round(session: Session, tier: Tier, number: int | None) -> AuctionRound:
    """A round of a tier's book; None for the newest.

    Raises:
        RoundNotFound: the book has no such round.
    """
    found = repository.newest(session, tier.id) if number is None else repository.by_number(session, tier.id, number)
    if found is None:
        raise RoundNotFound(f"tier {tier.name} has no round {number}", field="number")
    return found


def summary(session: Session, round_id: int) -> dict[str, str]:
    """The cleared round of a match, as a job's record tells of it: enough to ask for the round and replay it."""
    found = repository.by_id(session, round_id)
    assert found is not None, f"matched in round {round_id}, which is not there"
    return {"number": str(found.number), "seed": found.seed, "seed_hash": found.seed_hash, "rule": found.rule or ""}


def last_price(session: Session, tier_id: int) -> int | None:
    """The clearing price in wei per GPU-hour at which the tier traded last."""
    found = repository.newest_cleared(session, tier_id)
    return found.price_wei if found else None
