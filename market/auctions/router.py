"""Public auction rounds and prices over REST. Anyone can recompute a cleared round."""

from datetime import timedelta
from typing import Annotated, Literal, TypeVar

from fastapi import APIRouter, Path, Query

from market.accounts.deps import CurrentAccount
from market.auctions import service
from market.auctions.errors import BookNotFound, HistoryTooLong, RoundNotFound
from market.auctions.models import AuctionRound
from market.auctions.schemas import BookView, History, OwnOrders, RoundPage, RoundSummary, RoundView
from market.auctions.service import Book
from market.jobs import service as jobs
from market.platform.db.base import utc_now
from market.platform.db.rows import from_row
from market.platform.http.deps import Reads, ServicesDep
from market.platform.http.refusals import refusals
from market.platform.http.types import Instant

Summary = TypeVar("Summary", bound=RoundSummary)
router = APIRouter(prefix="/v1/auctions", tags=["auctions"])
BookName = Annotated[
    str,
    Path(max_length=64, pattern=r"^[a-z0-9-]+\.[a-z0-9-]{1,32}$", examples=["bronze.eu-west"], description="tier.zone"),
]
Number = Annotated[int, Path(ge=0, lt=2**31, description="The round's number within its book.")]
_BUCKETS = {
    "1m": timedelta(minutes=1),
    "5m": timedelta(minutes=5),
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "1d": timedelta(days=1),
}
BucketName = Literal["1m", "5m", "15m", "1h", "6h", "1d"]


@router.get("")
def list_books(services: ServicesDep, session: Reads) -> list[BookView]:
    """All order books with their last prices."""
    return [
        BookView(
            book=state.book.name,
            tier=state.book.tier.name,
            zone=state.book.zone,
            newest_round=state.newest.number,
            status=state.newest.status,  # type: ignore[arg-type]  # of the lifecycle
            last_price_wei_per_gpu_hour=state.last_price_wei,
        )
        for state in service.books(session, services.network)
    ]


@router.get("/{book}/rounds", responses=refusals(BookNotFound))
def list_auction_rounds(
    book: BookName,
    services: ServicesDep,
    session: Reads,
    after: Annotated[int | None, Query(ge=0, lt=2**31, description="Number of the last round seen.")] = None,
    limit: Annotated[int, Query(ge=1, le=200, description="Maximum number.")] = 50,
) -> RoundPage:
    """Rounds of a book without their orders, newest first."""
    named = service.parse_book(services.network, book)
    found = service.list_rounds(session, named, after, limit)
    return RoundPage(
        items=[_summary(RoundSummary, named, auction) for auction in found],
        next_after=found[-1].number if len(found) == limit else None,
    )


@router.get("/{book}/rounds/latest", responses=refusals(BookNotFound, RoundNotFound))
def get_latest_round(book: BookName, services: ServicesDep, session: Reads) -> RoundView:
    """The newest round of a book."""
    named = service.parse_book(services.network, book)
    return _view(named, service.get_round(session, named, None))


@router.get("/{book}/rounds/{number}", responses=refusals(BookNotFound, RoundNotFound))
def get_auction_round(book: BookName, number: Number, services: ServicesDep, session: Reads) -> RoundView:
    """One round of a book."""
    named = service.parse_book(services.network, book)
    return _view(named, service.get_round(session, named, number))


@router.get("/{book}/rounds/{number}/orders", responses=refusals(BookNotFound, RoundNotFound))
def list_own_orders(
    book: BookName, number: Number, account: CurrentAccount, services: ServicesDep, session: Reads
) -> OwnOrders:
    """Published names of your own orders in a round, from its close."""
    named = service.parse_book(services.network, book)
    job_ids = jobs.ids_of(session, account.address)
    return OwnOrders.model_validate(service.own_orders(session, named, number, account.address, job_ids))


@router.get("/{book}/history", responses=refusals(BookNotFound, HistoryTooLong))
def get_price_history(
    book: BookName,
    services: ServicesDep,
    session: Reads,
    start: Annotated[Instant | None, Query(alias="from", description="Default: a day before `to`.")] = None,
    end: Annotated[Instant | None, Query(alias="to", description="Default: now.")] = None,
    bucket: Annotated[BucketName, Query(description="Length of an interval.")] = "1h",
) -> History:
    """Time series of a book's prices, volume, depth and time to fill."""
    named = service.parse_book(services.network, book)
    end = end or utc_now()
    points = service.history(session, named, start or end - timedelta(days=1), end, _BUCKETS[bucket])
    return History(book=named.name, bucket=bucket, points=points)


def _summary(view: type[Summary], book: Book, auction: AuctionRound, **orders: object) -> Summary:
    sealed = {} if service.is_public(auction) else {"bid_nodes": None, "ask_nodes": None}
    return from_row(view, auction, book=book.name, price_wei_per_gpu_hour=auction.price_wei, **sealed, **orders)


def _view(book: Book, auction: AuctionRound) -> RoundView:
    secret, orders = (auction.secret, auction.book or None) if service.is_public(auction) else (None, None)
    return _summary(RoundView, book, auction, secret=secret, orders=orders)
