"""Order books with depth and history, flow of jobs, supply by tier and zone, waiting jobs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import ColumnElement, case, func, literal, select
from sqlalchemy.orm import Session

from market.auctions import service as auctions
from market.auctions.models import HAS_ORDERS, AuctionRound
from market.auctions.schemas import HistoryPoint
from market.auctions.service import Book
from market.domain.auctions.clearing import gross_ask
from market.domain.lifecycle import AuctionStatus, JobStatus, ProviderStatus
from market.domain.network import NetworkParameters
from market.jobs.models import Job, Slot
from market.platform.db.rows import from_row
from market.providers.models import AskRow, Provider


class WaitReason(StrEnum):
    """First obstacle of a waiting job, from its order and its tier's asks."""

    PAUSED = "paused"
    LIMIT_BELOW_RESERVE = "limit_below_reserve"
    TOO_FEW_ASKS = "too_few_asks"
    NEXT_ROUND = "next_round"

    @property
    def sentence(self) -> str:
        """Return what holds the job up, for people."""
        return _SENTENCES[self]


_SENTENCES = {
    WaitReason.PAUSED: "Its payer has paused it.",
    WaitReason.LIMIT_BELOW_RESERVE: "Its price limit is below the tier's reserve.",
    WaitReason.TOO_FEW_ASKS: "It wants more nodes than the tier offers.",
    WaitReason.NEXT_ROUND: "It waits for suitable free nodes in a round; its own page tells more.",
}


@dataclass(frozen=True, slots=True)
class BookLine:
    """One book: its newest round, last price, and nodes wanted and offered when it last cleared."""

    name: str
    tier: str
    zone: str
    number: int
    status: str
    closes_at: datetime
    last_price_wei: int | None
    bid_nodes: int | None
    ask_nodes: int | None


@dataclass(frozen=True, slots=True)
class Step:
    """Step of a depth curve: nodes wanted or offered at ``price_wei`` or better, fee included."""

    price_wei: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Depth:
    """Orders of the newest cleared round; later orders are sealed."""

    number: int
    price_wei: int | None
    bids: Sequence[Step]
    asks: Sequence[Step]


@dataclass(frozen=True, slots=True)
class Flow:
    """Jobs of a tier that were submitted in a period."""

    tier_id: int
    matched: int
    unmatched: int
    waiting: int
    median_wait_seconds: float | None
    slow_wait_seconds: float | None

    @property
    def fill_bps(self) -> int | None:
        """Share of the jobs that ended their wait with nodes."""
        ended = self.matched + self.unmatched
        return self.matched * 10_000 // ended if ended else None


@dataclass(frozen=True, slots=True)
class Supply:
    """Active nodes of a tier in a zone: with an open ask, and at work."""

    tier_id: int
    zone: str
    active: int
    offering: int
    at_work: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """Waiting jobs of a tier with the same first obstacle."""

    tier_id: int
    reason: WaitReason
    jobs: int
    nodes: int
    oldest_at: datetime


def books(session: Session, network: NetworkParameters) -> list[BookLine]:
    """Return all books by tier and zone."""
    return [
        from_row(
            BookLine,
            state.newest,
            name=state.book.name,
            tier=state.book.tier.name,
            last_price_wei=state.last_price_wei,
            bid_nodes=state.bid_nodes,
            ask_nodes=state.ask_nodes,
        )
        for state in auctions.books(session, network)
    ]


def _cleared(book: Book) -> tuple[ColumnElement[bool], ...]:
    of_book = (AuctionRound.tier_id == book.tier.id, AuctionRound.zone == book.zone)
    return (*of_book, AuctionRound.cleared_at.is_not(None), AuctionRound.status == AuctionStatus.CLEARED)


def price_history(session: Session, book: Book, now: datetime, days: int) -> list[HistoryPoint]:
    """Return a book's trades of the last ``days``, by the hour up to a week, else by the day."""
    bucket = timedelta(hours=1) if days <= 7 else timedelta(days=1)
    end = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    return auctions.history(session, book, end - timedelta(days=days), end, bucket)


def depth(session: Session, book: Book) -> Depth | None:
    """Return the curves of a book's newest cleared round with orders; None without one."""
    query = select(AuctionRound.number, AuctionRound.price_wei, AuctionRound.book).where(*_cleared(book), HAS_ORDERS)
    found = session.execute(query.order_by(AuctionRound.cleared_at.desc()).limit(1)).first()
    if found is None:
        return None
    orders = found.book
    bids = [(int(bid["limit_price_wei"]), int(bid["nodes"])) for bid in orders["bids"]]
    asks = [(gross_ask(int(ask["min_price_wei"]), orders["fee_bps"]), 1) for ask in orders["asks"]]
    return Depth(found.number, found.price_wei, _curve(sorted(bids, reverse=True)), _curve(sorted(asks)))


def _curve(orders: Iterable[tuple[int, int]]) -> list[Step]:
    """Return cumulative steps of orders in their order, one per price."""
    steps: dict[int, int] = {}
    total = 0
    for price, nodes in orders:
        total += nodes
        steps[price] = total
    return [Step(price, nodes) for price, nodes in steps.items()]


def flow(session: Session, since: datetime) -> list[Flow]:
    """Return what became of the jobs submitted from ``since`` on, by tier."""
    is_matched = Job.matched_at.is_not(None)
    is_waiting = Job.status == JobStatus.MATCHING
    has_bid = Job.funded_at.is_not(None)
    wait = func.extract("epoch", Job.matched_at - Job.funded_at)
    query = (
        select(
            Job.tier_id,
            func.count().filter(is_matched).label("matched"),
            func.count().filter(has_bid, ~is_matched, ~is_waiting, Job.status != JobStatus.FUNDED).label("unmatched"),
            func.count().filter(is_waiting).label("waiting"),
            *(func.percentile_cont(share).within_group(wait).filter(is_matched) for share in (0.5, 0.9)),
        )
        .where(Job.created_at >= since)
        .group_by(Job.tier_id)
        .order_by(Job.tier_id)
    )
    return [Flow(*row) for row in session.execute(query).tuples()]


def supply(session: Session) -> list[Supply]:
    """Return the active nodes by tier and zone."""
    # A node has at most one open ask and one slot, so the joins repeat no row.
    query = (
        select(Provider.tier_id, Provider.region, func.count(), func.count(AskRow.id), func.count(Slot.job_id))
        .outerjoin(AskRow, (AskRow.provider == Provider.address) & (AskRow.status == "open"))
        .outerjoin(Slot, Slot.provider == Provider.address)
        .where(Provider.status == ProviderStatus.ACTIVE, Provider.tier_id > 0)
        .group_by(Provider.tier_id, Provider.region)
        .order_by(Provider.tier_id, Provider.region)
    )
    found = session.execute(query).tuples()
    return [Supply(tier_id or 0, zone, active, offering, at_work) for tier_id, zone, active, offering, at_work in found]


def waiting(session: Session, network: NetworkParameters, offers: Sequence[Supply]) -> list[Waiting]:
    """Return the waiting jobs by tier and first obstacle; ``offers`` come from :func:`supply`."""
    reserve = case(
        {tier.id: literal(tier.reserve_price_wei, Job.max_price_wei.type) for tier in network.tiers}, value=Job.tier_id
    )
    offering: dict[int, int] = {tier.id: 0 for tier in network.tiers}
    for offer in offers:
        offering[offer.tier_id] = offering.get(offer.tier_id, 0) + offer.offering
    limit = func.coalesce(Job.amended_max_price_wei, Job.max_price_wei)
    reason = case(
        (Job.paused_at.is_not(None), WaitReason.PAUSED),
        (limit < reserve, WaitReason.LIMIT_BELOW_RESERVE),
        (Job.nodes > case(offering, value=Job.tier_id, else_=0), WaitReason.TOO_FEW_ASKS),
        else_=WaitReason.NEXT_ROUND,
    )
    query = (
        select(Job.tier_id, reason, func.count(), func.sum(Job.nodes), func.min(Job.created_at))
        .where(Job.status == JobStatus.MATCHING)
        .group_by(Job.tier_id, reason)
        .order_by(Job.tier_id, func.count().desc())
    )
    return [
        Waiting(tier_id, WaitReason(why), jobs, nodes, oldest_at)
        for tier_id, why, jobs, nodes, oldest_at in session.execute(query).tuples()
    ]
