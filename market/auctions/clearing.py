"""Closing and clearing of due auction rounds.

An order book is one tier in one zone, the region in which a node is registered. A round collects orders for at least
the auction interval and closes as soon as a trade is possible. Closing fixes the orders and opens the next round. Most
rounds clear in the same transaction. A round that needs a random tie-break among sellers waits for a block hash. That
block is named after the orders are fixed.

A job bids in the books of all zones that it accepts. The books of a tier close one after another under one lock, in
random order. A bid in a closed round enters no other round until that one is cleared, so no order trades twice.

A round clears one sub-book (market.domain.auctions.books), in which all asks are alike to the bids. The order of the
sub-books rotates with the round's number. Reserved nodes are withheld until their job has enough of them; then its
sub-book comes first.
"""

import secrets
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from sqlalchemy.orm import Session

from market.auctions import repository
from market.auctions.models import AuctionRound
from market.auctions.sealed_orders import clear_book, seal
from market.domain.auctions.books import StandingBid, SubBook, partition_book
from market.domain.auctions.clearing import Clearing
from market.domain.lifecycle import AUCTION, AuctionEvent, AuctionStatus
from market.domain.network import NetworkParameters, Tier
from market.jobs import service as jobs
from market.platform.db.session import Database, database_now, enqueue_after_commit
from market.platform.events.service import apply_event
from market.providers import service as providers
from market.providers.service import Offer
from market.settings import Settings
from market.training.leases import service as leases
from market.training.matching import assignment, book, reservations
from zoo_protocol import auction as protocol
from zoo_protocol.hashing import from_hex, to_hex

DRAW = "auctions.draw"


class Blocks(Protocol):
    """The chain as a source of random tie-breaks; see :class:`market.chain.views.ChainViews`."""

    def head_number(self) -> int: ...

    def block_hash(self, number: int) -> str | None: ...


def clear_due(database: Database, settings: Settings, network: NetworkParameters) -> int:
    """Close due rounds, clear those without a random tie-break; return the number of matches."""
    matched = 0
    for tier in network.tiers:
        with database.transaction() as session:
            if repository.lock_books(session, tier.id):
                matched += _close_books(session, settings, network, tier)
    return matched


def draw_due(database: Database, settings: Settings, network: NetworkParameters, blocks: Blocks) -> int:
    """Name a future seed block for each closed round; clear those whose block has a successor.

    Returns:
        The number of matched jobs.

    Raises:
        ChainError: the chain does not answer. The rounds wait.
    """
    with database.transaction() as session:
        waiting = [(auction.id, auction.seed_block) for auction in repository.closed_rounds(session)]
    matched = 0
    for round_id, seed_block in waiting:
        head = blocks.head_number()
        if seed_block is None:
            with database.transaction() as session:
                repository.name_seed_block(session, round_id, head + network.seed_delay_blocks)
        elif head > seed_block and (block_hash := blocks.block_hash(seed_block)) is not None:
            with database.transaction() as session:
                auction = repository.lock_closed(session, round_id)
                if auction is not None:
                    auction.seed_block_hash = block_hash
                    seed = protocol.lot_seed(from_hex(auction.secret), from_hex(block_hash))
                    matched += _clear(session, settings, auction, clear_book(auction.book, seed))
    return matched


def _close_books(session: Session, settings: Settings, network: NetworkParameters, tier: Tier) -> int:
    now = database_now(session)
    interval = timedelta(seconds=settings.auction_interval_seconds)
    # Read before the offers: nodes that a closed round sells concurrently must not appear free.
    closed = repository.closed_rounds(session, tier.id)
    held = {job_id for auction in closed for job_id in auction.owners["bids"].values()}
    waiting = {auction.zone for auction in closed}
    offers = providers.open_offers(session, settings, tier.id, now)
    unsold = frozenset(offer.provider for offer in offers) - leases.busy_providers(session)
    reservation = reservations.reserve(session, settings, tier, offers, unsold, now)
    free = _free_offers(offers, unsold, reservation)
    for zone in sorted(free.keys() - repository.zones(session, tier.id)):
        _open_round(session, tier.id, zone, 0, now + interval)
    matched = 0
    for auction in repository.due_rounds(session, tier.id, now):
        if auction.zone in waiting or not free.get(auction.zone):
            continue
        bids = [bid for bid in book.open_bids(session, tier.id, auction.zone, now) if bid.id not in held]
        ordered = _ordered_sub_books(bids, free[auction.zone], auction, reservation)
        clearing = _close(session, network, tier, auction, ordered, now)
        if clearing is None:
            continue
        _open_round(session, tier.id, auction.zone, auction.number + 1, now + interval)
        if clearing.drawn:
            held |= set(auction.owners["bids"].values())
            enqueue_after_commit(session, DRAW)
        else:
            matched += _clear(session, settings, auction, clearing)
    return matched


def _free_offers(
    offers: Sequence[Offer], unsold: frozenset[str], reservation: reservations.Reservation | None
) -> dict[str, list[Offer]]:
    reserved = reservation.nodes if reservation is not None and reservation.gathers else frozenset()
    by_zone = defaultdict(list)
    for offer in offers:
        if offer.provider in unsold - reserved:
            by_zone[offer.region].append(offer)
    return by_zone


def _ordered_sub_books(
    bids: Sequence[StandingBid],
    offers: Sequence[Offer],
    auction: AuctionRound,
    reservation: reservations.Reservation | None,
) -> list[SubBook[Offer]]:
    found = partition_book(bids, offers, auction.number)
    if reservation is not None and reservation.zone == auction.zone:
        found.sort(key=lambda sub_book: not _serves(sub_book, reservation))
    return found


def _serves(sub_book: SubBook[Offer], reservation: reservations.Reservation) -> bool:
    return sub_book.environment_class == reservation.environment_class and any(
        bid.id == reservation.job_id for bid in sub_book.bids
    )


def _close(
    session: Session,
    network: NetworkParameters,
    tier: Tier,
    auction: AuctionRound,
    ordered: Sequence[SubBook[Offer]],
    now: datetime,
) -> Clearing | None:
    """Fix the orders of the first sub-book with a possible trade, or return None."""
    # The sellers of the returned clearing are provisional if it needs a random tie-break.
    for sub_book in ordered:
        sealed = seal(sub_book.bids, sub_book.offers, tier, network.fee_bps, sub_book.environment_class)
        clearing = clear_book(sealed.book, bytes(32))
        if clearing.price is None:
            continue
        auction.book, auction.owners = sealed.book, sealed.owners
        auction.book_hash = to_hex(protocol.book_hash(sealed.book))
        auction.bid_nodes, auction.ask_nodes = sealed.bid_nodes, len(sub_book.offers)
        auction.closed_at = now
        _transition_round(session, auction, AuctionEvent.CLOSE)
        return clearing
    return None


def _clear(session: Session, settings: Settings, auction: AuctionRound, clearing: Clearing) -> int:
    """Match the jobs and publish the round. Return the number of placed jobs."""
    # A match is void if its job has ended since the close, or one of its nodes may not work any more. Withdrawals and
    # changes of asks after the close have no effect on it.
    assert clearing.price is not None  # otherwise the round would be open
    now = database_now(session)
    jobs_by_name, nodes_by_name = auction.owners["bids"], auction.owners["asks"]
    working = providers.working_among(session, settings, nodes_by_name.values())
    placed = 0
    matches, waits = [], []
    for bid, asks in _assign_nodes(session, settings, auction, clearing, working).items():
        nodes = [nodes_by_name[ask] for ask in asks]
        is_placed = working.issuperset(nodes) and book.assign(
            session, settings, jobs_by_name[bid], clearing.price, auction.id, nodes, auction.book["environment_class"]
        )
        matches.append({"bid": bid, "asks": list(asks), "placed": is_placed})
        if is_placed:
            placed += 1
            job = jobs.get(session, jobs_by_name[bid])
            auction.volume_us += job.order.units * job.order.unitWeight
            funded_at = job.times["funded_at"] or now
            waits.append(max(0, (now - funded_at) // timedelta(milliseconds=1)))
    auction.price_wei, auction.rule = clearing.price, clearing.rule
    auction.matches, auction.waits_ms = matches, waits
    auction.cleared_at = now
    _transition_round(session, auction, AuctionEvent.CLEAR, "traded" if placed else "void")
    return placed


def _assign_nodes(
    session: Session, settings: Settings, auction: AuctionRound, clearing: Clearing, working: set[str]
) -> Mapping[str, Sequence[str]]:
    """Assign the sold asks to the buying bids. The auction rule leaves that to placement."""
    # If a sold node may not work any more, the rule's own assignment stays. Otherwise the choice of the void match
    # would be open to manipulation.
    jobs_by_name, nodes_by_name = auction.owners["bids"], auction.owners["asks"]
    sold = [nodes_by_name[ask] for asks in clearing.fills.values() for ask in asks]
    if len(clearing.fills) < 2 or not working.issuperset(sold):
        return clearing.fills
    names = {address: name for name, address in nodes_by_name.items()}
    sizes = {jobs_by_name[bid]: len(asks) for bid, asks in clearing.fills.items()}
    assigned = assignment.assign_nodes(session, settings, sizes, sold)
    return {bid: [names[address] for address in assigned[jobs_by_name[bid]]] for bid in clearing.fills}


def _open_round(session: Session, tier_id: int, zone: str, number: int, closes_at: datetime) -> None:
    """Open a round unless it exists. Its public commitment binds the market to the secret."""
    secret = secrets.token_bytes(32)
    repository.insert_round(
        session,
        tier_id=tier_id,
        zone=zone,
        number=number,
        status=AuctionStatus.OPEN,
        secret=to_hex(secret),
        commitment=to_hex(protocol.commitment(secret)),
        closes_at=closes_at,
    )


def _transition_round(session: Session, auction: AuctionRound, event: AuctionEvent, reason: str | None = None) -> None:
    apply_event(session, auction, AUCTION, event, subject=("auction", str(auction.id)), reason=reason)
