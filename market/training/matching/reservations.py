"""Reservations: nodes withheld from the auction for a job that has waited long.

Each tier has at most one reservation, for a job that waited longer than ``reservation_after_seconds``. The job whose
last reservation is longest ago comes first, then the job that was funded first. It gets the zone and environment class
where most of the nodes it needs are free. While too few are free, no other job buys them. Once enough are, the next
auction round of that book begins with the job's sub-book. The price is made as always: a reservation buys no nodes.

An unused reservation ends after ``reservation_seconds``, and the tier gets no other for as long again while the job
waits. So outbid jobs and missing nodes cannot block other jobs for ever. A job with a limit below the tier's reserve
price gets none. Vacant replicas of running jobs are filled first, also from reserved nodes.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import itemgetter

from sqlalchemy.orm import Session

from market.domain.auctions.clearing import gross_ask
from market.domain.network import Tier
from market.domain.nodes.placement import Requirements
from market.jobs import repository as jobs_repository
from market.jobs.models import Job
from market.jobs.pricing import job_limit
from market.providers.service import Offer
from market.settings import Settings

_Book = tuple[str, str]  # zone and environment class

_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Reservation: free ``nodes`` that fit; ``gathers``: they are still too few."""

    job_id: str
    zone: str
    environment_class: str
    nodes: frozenset[str]
    gathers: bool


def reserve(
    session: Session, settings: Settings, tier: Tier, offers: Sequence[Offer], free: frozenset[str], now: datetime
) -> Reservation | None:
    """Return the tier's reservation, or make one if due. The tier's books are locked.

    ``offers`` are all of the tier, also of busy nodes. ``free`` nodes hold no replica.
    """
    found = reservation_of(session, tier.id, offers, free, now)
    if found is not None:
        return found
    jobs, supply = jobs_repository.jobs_in_book(session, tier.id, now), _Supply(offers)
    waited_since = now - timedelta(seconds=settings.reservation_after_seconds)
    length = timedelta(seconds=settings.reservation_seconds)
    if any(job.reserved_until is not None and job.reserved_until + length > now for job in jobs):
        return None
    for job in sorted(jobs, key=lambda job: job.reserved_until or _NEVER):
        waited = (job.funded_at or job.created_at) <= waited_since
        if not waited or job_limit(job) < tier.reserve_price_wei:
            continue
        enough = {book: nodes for book, nodes in supply.within_limit(job).items() if len(nodes) >= job.nodes}
        if enough:
            free_in = {book: len(free.intersection(nodes)) for book, nodes in enough.items()}
            job.reserved_zone, job.reserved_class = best = max(sorted(free_in), key=free_in.__getitem__)
            job.reserved_until = now + length
            return _of(job, enough[best], free)
    return None


def reservation_of(
    session: Session, tier_id: int, offers: Sequence[Offer], free: frozenset[str], now: datetime
) -> Reservation | None:
    """Return the tier's reservation, if any; arguments of :func:`reserve`. Writes nothing."""
    job = reserving(jobs_repository.jobs_in_book(session, tier_id, now), now)
    if job is None:
        return None
    books = _Supply(offers).within_limit(job)
    return _of(job, books.get((job.reserved_zone or "", job.reserved_class or ""), []), free)


def reserving(jobs: Iterable[Job], now: datetime) -> Job | None:
    """Return the job of a tier's book that has its reservation."""
    return next((job for job in jobs if job.reserved_until is not None and job.reserved_until > now), None)


def _of(job: Job, nodes: Sequence[str], free: frozenset[str]) -> Reservation:
    assert job.reserved_zone is not None
    assert job.reserved_class is not None
    held = free.intersection(nodes)
    return Reservation(job.id, job.reserved_zone, job.reserved_class, held, gathers=len(held) < job.nodes)


class _Supply:
    """Offers by zone and class, cheapest first; sorted once for jobs of equal requirements."""

    def __init__(self, offers: Sequence[Offer]) -> None:
        self._offers = offers
        self._books: dict[tuple[Requirements, int], dict[_Book, list[tuple[int, str]]]] = {}

    def within_limit(self, job: Job) -> dict[_Book, list[str]]:
        """Return the nodes that the job accepts and can pay."""
        assert job.fee_bps is not None  # set when it was funded
        books = self._of_kind(Requirements.of(job.requirements), job.fee_bps)
        limit = job_limit(job)
        return {
            book: [provider for _, provider in ranked[: bisect_right(ranked, limit, key=itemgetter(0))]]
            for book, ranked in books.items()
        }

    def _of_kind(self, requirements: Requirements, fee_bps: int) -> dict[_Book, list[tuple[int, str]]]:
        kind = requirements, fee_bps
        if kind not in self._books:
            found: defaultdict[_Book, list[tuple[int, str]]] = defaultdict(list)
            for offer in filter(requirements.accepts, self._offers):
                book = offer.region, offer.environment_class
                found[book].append((gross_ask(offer.min_price_wei, fee_bps), offer.provider))
            self._books[kind] = {book: sorted(nodes) for book, nodes in found.items()}
        return self._books[kind]
