"""Forecast of a waiting job: suitable nodes, a clearing price, the next capacity."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row
from sqlalchemy.orm import Session

from market.domain.auctions.books import StandingBid, partition_book
from market.domain.auctions.clearing import clear, gross_ask
from market.domain.network import NetworkParameters, Tier
from market.domain.nodes.placement import Constraint, Requirements
from market.jobs import repository as jobs_repository
from market.jobs.models import Job
from market.jobs.pricing import job_limit
from market.providers import service as providers
from market.providers.census import census
from market.providers.service import Offer
from market.settings import Settings
from market.training.matching import reservations
from market.training.matching.book import bids_in_zone

_ANY_PRICE = 2**95
_PRICE_STEPS = 100
"""A clearing price is rounded up to hundredths of the reserve, so that it does not reveal an order."""


@dataclass(frozen=True, slots=True)
class Step:
    """Constraint: nodes that it alone removes, and nodes left after it and earlier ones."""

    code: str
    removes: int
    left: int


@dataclass(frozen=True, slots=True)
class BookForecast:
    """One zone and environment class in which the job may be placed.

    ``suitable`` nodes have an open ask and meet the requirements. ``affordable`` ones also ask at most the job's limit,
    and ``free`` ones are also sellable now. ``price``: would serve the job now if its limit allowed it, in wei per
    GPU-hour, rounded up. ``trades``: its own limit suffices. ``expected_at``: estimated from the running jobs' rounds.
    """

    zone: str
    environment_class: str
    suitable: int
    affordable: int
    free: int
    price: int | None
    trades: bool
    expected_at: datetime | None


@dataclass(frozen=True, slots=True)
class CapacityForecast:
    """Forecast of a job. ``relief``: free affordable nodes that one requirement alone excludes."""

    limit: int
    total: int
    steps: tuple[Step, ...]
    books: tuple[BookForecast, ...]
    relief: Mapping[Constraint, int]
    reserved_elsewhere: int


def forecast_capacity(
    session: Session, settings: Settings, network: NetworkParameters, job: Job, now: datetime
) -> CapacityForecast:
    """Return the forecast of a job in the order book."""
    assert job.fee_bps is not None  # set at funding
    requirements, limit = Requirements.of(job.requirements), job_limit(job)
    kinds = census(session, settings, job.tier_id, requirements.min_reliability_bps, now)
    offers = providers.open_offers(session, settings, job.tier_id, now)
    asks = {offer.provider: gross_ask(offer.min_price_wei, job.fee_bps) for offer in offers}
    holders = jobs_repository.slots_by_holder(session)
    in_book = jobs_repository.jobs_in_book(session, job.tier_id, now)
    is_reserved = any(one.reserved_until is not None and one.reserved_until > now for one in in_book)
    free_asks = frozenset(asks) - holders.keys()
    reserved = _reserved_for_others(session, job, offers, free_asks, now) if is_reserved else frozenset[str]()
    broken = [(requirements.broken_by(equal.node), equal.addresses) for equal in kinds]
    everyone = _union(equal.addresses for equal in kinds)
    seen, working = _union(equal.seen for equal in kinds), _union(equal.working for equal in kinds)

    removed: dict[str, Set[str]] = {
        "not_active": everyone - working,
        "silent": everyone - seen,
        "no_ask": (working & seen) - asks.keys(),
        **{one.value: _union(nodes for found, nodes in broken if one in found) for one in Constraint},
        "price": {node for node, price in asks.items() if price > limit} & everyone,
        "busy": everyone & holders.keys(),
        "reserved": everyone & reserved,
    }
    left: Set[str] = everyone
    steps = []
    for code, nodes in removed.items():
        left = left - nodes
        steps.append(Step(code, len(nodes), len(left)))

    unsold = [offer for offer in offers if offer.provider not in holders and offer.provider not in reserved]
    affordable_now = {offer.provider for offer in unsold if asks[offer.provider] <= limit}
    relief = {
        constraint: len(affordable_now & _union(nodes for found, nodes in broken if found == [constraint]))
        for constraint in Constraint
    }
    ends = _ends(session, {holder: held_by for holder, held_by in holders.items() if holder in asks}, now)
    tier = next(tier for tier in network.tiers if tier.id == job.tier_id)
    suitable: defaultdict[tuple[str, str], list[Offer]] = defaultdict(list)
    for offer in filter(requirements.accepts, offers):
        suitable[(offer.region, offer.environment_class)].append(offer)
    books = []
    for (zone, name), of_book in sorted(suitable.items()):
        affordable = [offer.provider for offer in of_book if asks[offer.provider] <= limit]
        free = [one for one in affordable if one not in holders and one not in reserved]
        known = [end for one in affordable if one in holders and (end := ends[one]) is not None]
        price, trades = _price_now(bids_in_zone(in_book, zone), tier, job, zone, name, unsold)
        soonest = sorted([now] * len(free) + known)
        books.append(
            BookForecast(
                zone=zone,
                environment_class=name,
                suitable=len(of_book),
                affordable=len(affordable),
                free=len(free),
                price=price,
                trades=trades,
                expected_at=soonest[job.nodes - 1] if len(soonest) >= job.nodes else None,
            )
        )
    return CapacityForecast(limit, len(everyone), tuple(steps), tuple(books), relief, len(reserved))


def _union(nodes: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*nodes)


def _reserved_for_others(
    session: Session, job: Job, offers: Sequence[Offer], free: frozenset[str], now: datetime
) -> frozenset[str]:
    found = reservations.reservation_of(session, job.tier_id, offers, free, now)
    return found.nodes if found is not None and found.gathers and found.job_id != job.id else frozenset()


def _price_now(
    bids: Sequence[StandingBid], tier: Tier, job: Job, zone: str, environment_class: str, free: Sequence[Offer]
) -> tuple[int | None, bool]:
    """Return (price at which the current book would serve the job, is within its limit)."""
    assert job.fee_bps is not None
    in_class = [node for node in free if (node.region, node.environment_class) == (zone, environment_class)]
    prices, trades = [], False
    for part in partition_book(bids, in_class, 0):
        for limit in (_ANY_PRICE, None):
            price = _served_at(part.bids, part.offers, tier, job, limit)
            if price is not None and limit is None:
                trades = True
            elif price is not None:
                prices.append(price)
    step = max(1, tier.reserve_price_wei // _PRICE_STEPS)
    return (-(-min(prices) // step) * step if prices else None), trades


def _served_at(
    bids: Sequence[StandingBid], offers: Sequence[Offer], tier: Tier, job: Job, limit: int | None
) -> int | None:
    """Return the price at which these orders serve the job within this limit, or None."""
    # Price and buyers do not depend on the random tie-break, so the seed is constant.
    assert job.fee_bps is not None
    asked = [replace(bid, limit_price=limit) if bid.id == job.id and limit is not None else bid for bid in bids]
    asks = [offer.as_order() for offer in offers]
    clearing = clear(asked, asks, tier.reserve_price_wei, job.fee_bps, bytes(32))
    return clearing.price if job.id in clearing.fills else None


def _ends(session: Session, held_by: Mapping[str, str], now: datetime) -> dict[str, datetime | None]:
    """Estimate the end of each node's job from its completed rounds; None before the first one."""
    ends = {row.id: _end(row, now) for row in jobs_repository.progress(session, set(held_by.values()))}
    return {node: ends.get(job_id) for node, job_id in held_by.items()}


def _end(job: Row[*tuple[Any, ...]], now: datetime) -> datetime | None:
    if job.current_round == 0 or job.matched_at is None or job.round_started_at is None:
        return None
    per_round: timedelta = (job.round_started_at - job.matched_at) / job.current_round
    end: datetime = job.round_started_at + per_round * (job.rounds - job.current_round)
    return max(now, end)
