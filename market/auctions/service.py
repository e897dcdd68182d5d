"""Public reads of the auctions, and the removal of old orders."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from market.auctions import repository
from market.auctions.errors import BookNotFound, HistoryTooLong, RoundNotFound
from market.auctions.models import AuctionRound
from market.auctions.schemas import HistoryPoint
from market.domain.lifecycle import AuctionStatus
from market.domain.network import NetworkParameters, Tier
from market.jobs import service as jobs
from market.platform.db.rows import from_row
from market.platform.db.session import Database


@dataclass(frozen=True, slots=True)
class BookStatus:
    """Books of a tier by zone for one job: earliest close and last traded price.

    ``held``: the job's bid is in a closed round that waits for its seed block.
    """

    closes_at: Mapping[str, datetime]
    last_price: Mapping[str, int]
    held: bool


MAX_BUCKETS = 1_000
_SEPARATOR = "."
_ROUNDS_PER_BATCH = 100  # in one transaction


@dataclass(frozen=True, slots=True)
class Book:
    """The orders of one tier in one zone."""

    tier: Tier
    zone: str

    @property
    def name(self) -> str:
        """Name in URLs."""
        return f"{self.tier.name}{_SEPARATOR}{self.zone}"


def parse_book(network: NetworkParameters, name: str) -> Book:
    """Parse a book's name, such as ``bronze.eu-west``.

    Raises:
        BookNotFound: unknown tier or malformed name.
    """
    tier_name, separator, zone = name.partition(_SEPARATOR)
    if separator and zone:
        for tier in network.tiers:
            if tier.name == tier_name:
                return Book(tier, zone)
    tiers = ", ".join(tier.name for tier in network.tiers)
    raise BookNotFound(f"book is {name!r}; expected a tier ({tiers}), a dot and a zone", field="book")


@dataclass(frozen=True, slots=True)
class BookState:
    """A book with its newest round, last traded price, and nodes when it last cleared."""

    book: Book
    newest: AuctionRound
    last_price_wei: int | None
    bid_nodes: int | None
    ask_nodes: int | None


def books(session: Session, network: NetworkParameters) -> list[BookState]:
    """Return the state of every book, by tier and zone."""
    tiers = {tier.id: tier for tier in network.tiers}
    prices = {(row.tier_id, row.zone): row.price_wei for row in repository.last_trades(session)}
    cleared = {(row.tier_id, row.zone): (row.bid_nodes, row.ask_nodes) for row in repository.last_cleared(session)}
    return [
        BookState(
            Book(tiers[auction.tier_id], auction.zone),
            auction,
            prices.get((auction.tier_id, auction.zone)),
            *cleared.get((auction.tier_id, auction.zone), (None, None)),
        )
        for auction in repository.newest_of_each_book(session)
        if auction.tier_id in tiers
    ]


def get_round(session: Session, book: Book, number: int | None) -> AuctionRound:
    """Return a round of a book, or its newest round if ``number`` is None. Raises RoundNotFound."""
    found = repository.find(session, book.tier.id, book.zone, number)
    if found is None:
        which = "round" if number is None else f"round {number}"
        raise RoundNotFound(f"book {book.name} has no {which}", field="book" if number is None else "number")
    return found


def list_rounds(session: Session, book: Book, before: int | None, limit: int) -> Sequence[AuctionRound]:
    """Return a book's rounds below the number ``before`` without their orders, newest first."""
    return repository.page(session, book.tier.id, book.zone, before, limit)


def own_orders(session: Session, book: Book, number: int, address: str, job_ids: set[str]) -> dict[str, dict[str, str]]:
    """Return the published names of an ask and bids in a closed round. Raises RoundNotFound.

    Returns:
        ``{"bids": {name: job id}, "asks": {name: address}}``.
    """
    owners = get_round(session, book, number).owners
    return {
        "bids": {name: job_id for name, job_id in owners.get("bids", {}).items() if job_id in job_ids},
        "asks": {name: provider for name, provider in owners.get("asks", {}).items() if provider == address},
    }


def history(session: Session, book: Book, start: datetime, end: datetime, bucket: timedelta) -> list[HistoryPoint]:
    """Return a book's trades from ``start`` to before ``end`` by bucket, without empty buckets.

    Raises:
        HistoryTooLong: the span is empty or has more than ``MAX_BUCKETS`` buckets.
    """
    steps = -(-(end - start) // bucket)
    if not 0 < steps <= MAX_BUCKETS:
        raise HistoryTooLong(
            f"{start.isoformat()} to {end.isoformat()} has {max(steps, 0)} buckets; expected 1 to {MAX_BUCKETS}",
            field="from" if steps <= 0 else "bucket",
        )
    waits = repository.wait_buckets(session, book.tier.id, book.zone, start, end, bucket)
    return [
        from_row(HistoryPoint, row, fill_p50_ms=waits[row.start][0], fill_p90_ms=waits[row.start][1])
        for row in repository.price_buckets(session, book.tier.id, book.zone, start, end, bucket)
    ]


def summary(session: Session, round_id: int, job_id: str) -> dict[str, str]:
    """Return the fields of a match's round for a job record: enough to recompute the round."""
    found = session.get(AuctionRound, round_id)
    assert found is not None, f"matched in round {round_id}, which does not exist"
    order = next((name for name, owner in found.owners.get("bids", {}).items() if owner == job_id), "")
    return {
        "zone": found.zone,
        "number": str(found.number),
        "order": order,
        "book_hash": found.book_hash or "",
        "commitment": found.commitment,
        "secret": found.secret,
        "rule": found.rule or "",
    }


def last_price(session: Session, tier_id: int) -> int | None:
    """Return the last traded price of a tier in wei per GPU-hour."""
    return next((row.price_wei for row in repository.last_trades(session, tier_id)), None)


def last_prices(session: Session) -> dict[int, int]:
    """Return the last traded price in wei per GPU-hour of each tier with a trade."""
    found: dict[int, int] = {}
    for row in repository.last_trades(session):
        found.setdefault(row.tier_id, row.price_wei)
    return found


def book_status(session: Session, tier_id: int, job_id: str) -> BookStatus:
    """Return the state of a tier's books for a waiting job."""
    newest = [row for row in repository.newest_of_each_book(session) if row.tier_id == tier_id]
    closed = repository.closed_rounds(session, tier_id)
    return BookStatus(
        closes_at={row.zone: row.closes_at for row in newest if row.status == AuctionStatus.OPEN},
        last_price={row.zone: row.price_wei for row in repository.last_trades(session, tier_id)},
        held=any(job_id in row.owners["bids"].values() for row in closed),
    )


def purge_orders(database: Database, kept: timedelta, now: datetime) -> int:
    """Delete the orders of rounds cleared longer than ``kept`` ago. Return the number of rounds.

    Rounds of unended jobs keep their orders for the job record. Prices and matches stay.
    """
    deleted = 0
    while True:
        with database.transaction() as session:
            needed = jobs.auction_rounds_of_open_jobs(session)
            dropped = repository.drop_orders(session, now - kept, needed, _ROUNDS_PER_BATCH)
        deleted += dropped
        if dropped < _ROUNDS_PER_BATCH:
            return deleted


def is_public(auction: AuctionRound) -> bool:
    """Return true if a round is cleared, so that its orders may be shown."""
    return auction.status == AuctionStatus.CLEARED
