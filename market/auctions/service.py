"""What others may use of the auctions: the two steps of the workers, and everything that is public."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from market.auctions import repository
from market.auctions.errors import BookNotFound, HistoryTooLong, RoundNotFound
from market.auctions.models import AuctionRound
from market.domain.lifecycle import AuctionStatus
from market.domain.network import NetworkParameters, Tier
from market.jobs import service as jobs
from market.platform.db.session import Database


@dataclass(frozen=True, slots=True)
class Rounds:
    """What the auctions know. By zone: when its open round closes at the earliest, and the price of the last trade.

    ``held``: the job's bid is in a closed round that waits for its lot.
    """

    closes_at: Mapping[str, datetime]
    last_price: Mapping[str, int]
    held: bool


MAX_BUCKETS = 1_000
_SEPARATOR = "."
_ROUNDS_AT_ONCE = 100  # in one transaction


@dataclass(frozen=True, slots=True)
class Book:
    """The orders of one tier in one zone."""

    tier: Tier
    zone: str

    @property
    def name(self) -> str:
        """As it stands in addresses."""
        return f"{self.tier.name}{_SEPARATOR}{self.zone}"


@dataclass(frozen=True, slots=True)
class Bucket:
    """The trades of a book in one step of time.

    Prices in wei per GPU-hour; ``mean_wei`` is weighted by volume and floored. ``volume_us``: reference
    GPU-microseconds of the jobs placed. ``bid_nodes`` and ``ask_nodes``: wanted and offered when the last round closed.
    ``fill_p50_ms`` and ``fill_p90_ms``: from a job's funding to its match.
    """

    start: datetime
    rounds: int
    last_wei: int
    low_wei: int
    high_wei: int
    mean_wei: int
    volume_us: int
    bid_nodes: int
    ask_nodes: int
    fill_p50_ms: int
    fill_p90_ms: int


def book_named(network: NetworkParameters, name: str) -> Book:
    """The book of that name, such as ``bronze.eu-west``.

    Raises:
        BookNotFound: the network has no such tier, or the name is malformed.
    """
    tier_name, separator, zone = name.partition(_SEPARATOR)
    if separator and zone:
        for tier in network.tiers:
            if tier.name == tier_name:
                return Book(tier, zone)
    tiers = ", ".join(tier.name for tier in network.tiers)
    raise BookNotFound(f"{name!r} is no tier ({tiers}), a dot, and a zone", field="book")


def books(session: Session, network: NetworkParameters) -> list[tuple[Book, AuctionRound, int | None]]:
    """Every book with its newest round and the price at which it traded last."""
    tiers = {tier.id: tier for tier in network.tiers}
    return [
        (Book(tiers[auction.tier_id], auction.zone), auction, last_price(session, auction.tier_id, auction.zone))
        for auction in repository.newest_of_each_book(session)
        if auction.tier_id in tiers
    ]


def get_round(session: Session, book: Book, number: int | None) -> AuctionRound:
    """A round of a book; None for the newest.

    Raises:
        RoundNotFound: the book has no such round.
    """
    if number is None:
        found = repository.newest(session, book.tier.id, book.zone)
    else:
        found = repository.by_number(session, book.tier.id, book.zone, number)
    if found is None:
        which = "round" if number is None else f"round {number}"
        raise RoundNotFound(f"book {book.name} has no {which}", field="book" if number is None else "number")
    return found


def list_rounds(session: Session, book: Book, before: int | None, limit: int) -> Sequence[AuctionRound]:
    """Rounds of a book, newest first, without their orders, beginning below the number ``before``."""
    return repository.page(session, book.tier.id, book.zone, before, limit)


def own_orders(session: Session, book: Book, number: int, address: str, job_ids: set[str]) -> dict[str, dict[str, str]]:
    """Under which names a party's orders stand in a closed round.

    Args:
        address: a provider's; its ask is looked for.
        job_ids: jobs whose bids are looked for.

    Returns:
        ``{"bids": {name: job id}, "asks": {name: address}}``.

    Raises:
        RoundNotFound: the book has no such round.
    """
    owners = get_round(session, book, number).owners
    return {
        "bids": {name: job_id for name, job_id in owners.get("bids", {}).items() if job_id in job_ids},
        "asks": {name: provider for name, provider in owners.get("asks", {}).items() if provider == address},
    }


def history(session: Session, book: Book, start: datetime, end: datetime, bucket: timedelta) -> list[Bucket]:
    """The trades of a book from ``start`` to before ``end`` in steps of ``bucket``; steps without trades are left out.

    Raises:
        HistoryTooLong: the span has no length, or more than ``MAX_BUCKETS`` steps.
    """
    steps = -(-(end - start) // bucket)
    if not 0 < steps <= MAX_BUCKETS:
        raise HistoryTooLong(
            f"from {start.isoformat()} to {end.isoformat()} there are {max(steps, 0)} steps, not 1 to {MAX_BUCKETS}",
            field="from" if steps <= 0 else "bucket",
        )
    waits = repository.wait_buckets(session, book.tier.id, book.zone, start, end, bucket)
    return [
        Bucket(
            start=row.start,
            rounds=row.rounds,
            last_wei=int(row.last),
            low_wei=int(row.low),
            high_wei=int(row.high),
            mean_wei=int(row.mean),
            volume_us=int(row.volume),
            bid_nodes=row.bid_nodes,
            ask_nodes=row.ask_nodes,
            fill_p50_ms=waits[row.start][0],
            fill_p90_ms=waits[row.start][1],
        )
        for row in repository.price_buckets(session, book.tier.id, book.zone, start, end, bucket)
    ]


def summary(session: Session, round_id: int, job_id: str) -> dict[str, str]:
    """The cleared round of a match, as a job's record tells of it: enough to ask for the round and replay it."""
    found = repository.by_id(session, round_id)
    assert found is not None, f"matched in round {round_id}, which is not there"
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


def last_price(session: Session, tier_id: int, zone: str | None = None) -> int | None:
    """The price in wei per GPU-hour at which the tier, or one book of it, traded last."""
    return repository.last_traded(session, tier_id, zone)


def book_status(session: Session, tier_id: int, job_id: str) -> Rounds:
    """Where the books of a tier stand, for a job that waits in them."""
    newest = [row for row in repository.newest_of_each_book(session) if row.tier_id == tier_id]
    prices = {row.zone: last_price(session, tier_id, row.zone) for row in newest}
    closed = repository.closed_rounds(session, tier_id)
    return Rounds(
        closes_at={row.zone: row.closes_at for row in newest if row.status == AuctionStatus.OPEN},
        last_price={zone: price for zone, price in prices.items() if price is not None},
        held=any(job_id in row.owners["bids"].values() for row in closed),
    )


def forget_orders(database: Database, kept: timedelta, now: datetime) -> int:
    """Drop the orders of rounds that were cleared longer than ``kept`` ago, and that the record of no job has to name
    any more; prices and matches stay. Returns of how many rounds."""
    forgotten = 0
    while True:
        with database.transaction() as session:
            needed = jobs.rounds_of_unended(session)
            dropped = repository.drop_orders(session, now - kept, needed, _ROUNDS_AT_ONCE)
        forgotten += dropped
        if dropped < _ROUNDS_AT_ONCE:
            return forgotten


def is_public(auction: AuctionRound) -> bool:
    """Whether a round's orders may be shown: not before it is cleared."""
    return auction.status == AuctionStatus.CLEARED
