"""Forecast of a waiting job: suitable nodes, a clearing price, the next capacity."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import Row
from sqlalchemy.orm import Session

from market.domain.auctions.books import StandingBid, partition_book
from market.domain.auctions.clearing import AskOrder, clear
from market.domain.network import BPS, NetworkParameters, Tier
from market.domain.nodes.placement import Constraint, Node, Requirements
from market.jobs import repository as jobs_repository
from market.jobs.models import Job
from market.jobs.pricing import job_limit
from market.providers.census import EqualNodes, census
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


@dataclass(frozen=True, slots=True)
class _Group:
    """Equal nodes with the constraints that they break.

    ``free_asks``: of nodes that can be sold now, without ``reserved`` ones.
    """

    nodes: EqualNodes
    broken: list[Constraint]
    free_asks: tuple[int, ...]
    reserved: int


def forecast_capacity(
    session: Session, settings: Settings, network: NetworkParameters, job: Job, now: datetime
) -> CapacityForecast:
    """Return the forecast of a job in the order book.

    The database groups the nodes, so that the work here does not grow with the tier.
    """
    requirements, limit = Requirements.of(job.requirements), job_limit(job)
    in_book = jobs_repository.jobs_in_book(session, job.tier_id, now)
    wanted = {Requirements.of(one.requirements).min_reliability_bps for one in (job, *in_book)}
    net, held = _net_limit(job), jobs_repository.held_slots()
    found = census(session, settings, job.tier_id, now, reliabilities=wanted, limit_wei=net, held=held)
    groups = _without_reserved(found, requirements, job, in_book, now)
    of_tier = [group for group in groups if group.nodes.of_tier]
    relief = {
        constraint: sum(
            len(group.free_asks) for group in of_tier if group.nodes.affordable and group.broken == [constraint]
        )
        for constraint in Constraint
    }
    return CapacityForecast(
        limit=limit,
        total=_size(of_tier),
        steps=tuple(_steps(of_tier)),
        books=tuple(_books(session, network, job, in_book, groups, now)),
        relief=relief,
        reserved_elsewhere=sum(group.reserved for group in groups),
    )


def _net_limit(job: Job) -> int:
    """Return the highest ask that the job's limit covers with the fee."""
    assert job.fee_bps is not None  # set at funding
    return job_limit(job) * (BPS - job.fee_bps) // BPS


def _without_reserved(
    found: Sequence[EqualNodes], requirements: Requirements, job: Job, in_book: Sequence[Job], now: datetime
) -> list[_Group]:
    """Return the groups, without the nodes that the tier's reservation gathers for another job."""
    other = reservations.reserving(in_book, now)
    reserved = [0] * len(found)
    if other is not None and other.id != job.id:
        of_other, limit = Requirements.of(other.requirements), _net_limit(other)
        book = other.reserved_zone, other.reserved_class
        reserved = [
            sum(ask <= limit for ask in nodes.asks) if nodes.node.book == book and of_other.accepts(nodes.node) else 0
            for nodes in found
        ]
        if sum(reserved) >= other.nodes:  # it gathers no more
            reserved = [0] * len(found)
    return [
        _Group(nodes, requirements.broken_by(nodes.node), tuple(sorted(nodes.asks)[count:]), count)
        for nodes, count in zip(found, reserved, strict=True)
    ]


def _size(groups: Iterable[_Group]) -> int:
    return sum(group.nodes.size for group in groups)


def _steps(groups: Sequence[_Group]) -> Iterator[Step]:
    """Yield the constraints in order, with the nodes that each removes."""
    conditions: dict[str, Callable[[_Group], bool]] = {
        "not_active": lambda group: not group.nodes.working,
        "silent": lambda group: not group.nodes.seen,
        "no_ask": lambda group: group.nodes.working and group.nodes.seen and not group.nodes.offered,
        **{one.value: partial(_breaks, one) for one in Constraint},
        "price": lambda group: group.nodes.offered and not group.nodes.affordable,
        "busy": lambda group: group.nodes.busy,
    }
    left = groups
    for code, removes in conditions.items():
        left = [group for group in left if not removes(group)]
        yield Step(code, _size(filter(removes, groups)), _size(left))
    yield Step("reserved", sum(group.reserved for group in groups), _size(left) - sum(group.reserved for group in left))


def _breaks(constraint: Constraint, group: _Group) -> bool:
    return constraint in group.broken


def _books(
    session: Session,
    network: NetworkParameters,
    job: Job,
    in_book: Sequence[Job],
    groups: Sequence[_Group],
    now: datetime,
) -> Iterator[BookForecast]:
    tier = next(tier for tier in network.tiers if tier.id == job.tier_id)
    suitable: defaultdict[tuple[str, str], list[_Group]] = defaultdict(list)
    for group in groups:
        if group.nodes.offered and not group.broken:
            suitable[(group.nodes.node.region, group.nodes.node.environment_class)].append(group)
    ends: dict[str, datetime | None] | None = None
    for (zone, name), of_book in sorted(suitable.items()):
        affordable = [group for group in of_book if group.nodes.affordable]
        free = sum(len(group.free_asks) for group in affordable)
        soonest = [now] * free
        if free < job.nodes <= _size(affordable):
            ends = _ends(session, suitable.values(), now) if ends is None else ends
            known = [ends.get(job_id) for group in affordable for job_id in group.nodes.jobs]
            soonest += sorted(end for end in known if end is not None)
        in_zone = [group for group in groups if group.nodes.node.book == (zone, name)]
        price, trades = _price_now(bids_in_zone(in_book, zone), tier, job, in_zone)
        yield BookForecast(
            zone=zone,
            environment_class=name,
            suitable=_size(of_book),
            affordable=_size(affordable),
            free=free,
            price=price,
            trades=trades,
            expected_at=soonest[job.nodes - 1] if len(soonest) >= job.nodes else None,
        )


def _price_now(bids: Sequence[StandingBid], tier: Tier, job: Job, groups: Sequence[_Group]) -> tuple[int | None, bool]:
    """Return (price at which the current book would serve the job, is within its limit)."""
    asks: defaultdict[Node, list[int]] = defaultdict(list)
    for group in groups:
        asks[group.nodes.node] += group.free_asks
    # One node stands for all of its kind, as bids accept all of them or none.
    by_kind = {str(number): prices for number, prices in enumerate(asks.values()) if prices}
    kinds = [replace(node, provider=str(number)) for number, node in enumerate(asks) if str(number) in by_kind]
    prices, trades = [], False
    for part in partition_book(bids, kinds, 0):
        orders = [
            AskOrder(f"{kind.provider}:{number}", ask, 0)
            for kind in part.offers
            for number, ask in enumerate(by_kind[kind.provider])
        ]
        for limit in (_ANY_PRICE, None):
            price = _served_at(part.bids, orders, tier, job, limit)
            if price is not None and limit is None:
                trades = True
            elif price is not None:
                prices.append(price)
    step = max(1, tier.reserve_price_wei // _PRICE_STEPS)
    return (-(-min(prices) // step) * step if prices else None), trades


def _served_at(
    bids: Sequence[StandingBid], asks: Sequence[AskOrder], tier: Tier, job: Job, limit: int | None
) -> int | None:
    """Return the price at which these orders serve the job within this limit, or None."""
    # Price and buyers depend neither on ids and times of asks nor on the random tie-break, so the seed is constant.
    assert job.fee_bps is not None
    asked = [replace(bid, limit_price=limit) if bid.id == job.id and limit is not None else bid for bid in bids]
    clearing = clear(asked, asks, tier.reserve_price_wei, job.fee_bps, bytes(32))
    return clearing.price if job.id in clearing.fills else None


def _ends(session: Session, books: Iterable[Sequence[_Group]], now: datetime) -> dict[str, datetime | None]:
    """Estimate the ends of the jobs of these nodes from completed rounds; None before the first."""
    job_ids = {job_id for of_book in books for group in of_book for job_id in group.nodes.jobs}
    return {row.id: _end(row, now) for row in jobs_repository.progress(session, job_ids)}


def _end(job: Row[*tuple[Any, ...]], now: datetime) -> datetime | None:
    if job.current_round == 0 or job.matched_at is None or job.round_started_at is None:
        return None
    per_round: timedelta = (job.round_started_at - job.matched_at) / job.current_round
    end: datetime = job.round_started_at + per_round * (job.rounds - job.current_round)
    return max(now, end)
