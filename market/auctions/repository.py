"""Queries on auction rounds."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Integer, Row, Select, cast, func, select, update
from sqlalchemy.dialects.postgresql import aggregate_order_by, insert
from sqlalchemy.orm import Session, defer

from market.auctions.models import HAS_ORDERS, AuctionRound
from market.domain.lifecycle import AuctionStatus

_BOOKS_LOCK = 0x626F6F6B  # "book"


def lock_books(session: Session, tier_id: int) -> bool:
    """Hold all books of a tier until the end of the transaction; False if somebody else does."""
    return bool(session.scalar(select(func.pg_try_advisory_xact_lock(_BOOKS_LOCK, tier_id))))


def insert_round(session: Session, **values: object) -> None:
    """Open a round of a book unless it is there."""
    session.execute(insert(AuctionRound).values(**values).on_conflict_do_nothing())


def zones(session: Session, tier_id: int) -> set[str]:
    """The zones in which a tier has a book."""
    return set(session.scalars(select(AuctionRound.zone).where(AuctionRound.tier_id == tier_id).distinct()))


def due_rounds(session: Session, tier_id: int, now: datetime) -> Sequence[AuctionRound]:
    """Open rounds of a tier whose time has come, in random order: that of their secrets."""
    query = select(AuctionRound).where(
        AuctionRound.tier_id == tier_id, AuctionRound.status == AuctionStatus.OPEN, AuctionRound.closes_at <= now
    )
    return session.scalars(query.order_by(AuctionRound.secret)).all()


def closed_rounds(session: Session, tier_id: int | None = None) -> Sequence[AuctionRound]:
    """Rounds that wait for the block that decides their lot."""
    query = select(AuctionRound).where(AuctionRound.status == AuctionStatus.CLOSED)
    if tier_id is not None:
        query = query.where(AuctionRound.tier_id == tier_id)
    return session.scalars(query.order_by(AuctionRound.id)).all()


def lock_closed(session: Session, round_id: int) -> AuctionRound | None:
    """The round, locked, if it still waits for its lot."""
    query = select(AuctionRound).where(AuctionRound.id == round_id, AuctionRound.status == AuctionStatus.CLOSED)
    return session.scalar(query.with_for_update().execution_options(populate_existing=True))


def name_seed_block(session: Session, round_id: int, number: int) -> None:
    """Fix the block that decides the lot, unless it is fixed."""
    query = update(AuctionRound).where(AuctionRound.id == round_id, AuctionRound.seed_block.is_(None))
    session.execute(query.values(seed_block=number))


def newest_of_each_book(session: Session) -> Sequence[AuctionRound]:
    """The newest round of every book, by tier and zone, without its orders."""
    query = _without_orders().distinct(AuctionRound.tier_id, AuctionRound.zone)
    return session.scalars(query.order_by(AuctionRound.tier_id, AuctionRound.zone, AuctionRound.number.desc())).all()


def newest(session: Session, tier_id: int, zone: str) -> AuctionRound | None:
    """The newest round of a book."""
    query = select(AuctionRound).where(AuctionRound.tier_id == tier_id, AuctionRound.zone == zone)
    return session.scalar(query.order_by(AuctionRound.number.desc()).limit(1))


def by_number(session: Session, tier_id: int, zone: str, number: int) -> AuctionRound | None:
    """One round of a book."""
    query = select(AuctionRound).where(
        AuctionRound.tier_id == tier_id, AuctionRound.zone == zone, AuctionRound.number == number
    )
    return session.scalar(query)


def page(session: Session, tier_id: int, zone: str, before: int | None, limit: int) -> Sequence[AuctionRound]:
    """Rounds of a book without their orders, newest first, beginning below the number ``before``."""
    query = _without_orders().where(AuctionRound.tier_id == tier_id, AuctionRound.zone == zone)
    if before is not None:
        query = query.where(AuctionRound.number < before)
    return session.scalars(query.order_by(AuctionRound.number.desc()).limit(limit)).all()


def by_id(session: Session, round_id: int) -> AuctionRound | None:
    """One round."""
    return session.get(AuctionRound, round_id)


def drop_orders(session: Session, before: datetime, besides: Collection[int], limit: int) -> int:
    """Drop the orders of so many rounds at most that were cleared before then; returns of how many."""
    due = select(AuctionRound.id).where(HAS_ORDERS, AuctionRound.cleared_at < before, AuctionRound.id.not_in(besides))
    rounds = AuctionRound.id.in_(due.order_by(AuctionRound.cleared_at).limit(limit))
    dropped = update(AuctionRound).where(rounds).values(book={}, owners={}).returning(AuctionRound.id)
    return len(session.scalars(dropped).all())


def last_traded(session: Session, tier_id: int, zone: str | None) -> int | None:
    """The price at which the book, or without a zone any book of the tier, traded last."""
    query = select(AuctionRound.price_wei).where(AuctionRound.tier_id == tier_id, AuctionRound.volume_us > 0)
    if zone is not None:
        query = query.where(AuctionRound.zone == zone)
    return session.scalar(query.order_by(AuctionRound.cleared_at.desc(), AuctionRound.id.desc()).limit(1))


def price_buckets(
    session: Session, tier_id: int, zone: str, start: datetime, end: datetime, bucket: timedelta
) -> Sequence[Row[*tuple[Any, ...]]]:
    """Trades of a book from ``start`` to before ``end`` in steps of ``bucket``; steps without a trade are left out."""
    begin = func.date_bin(bucket, AuctionRound.cleared_at, start)
    newest_first = AuctionRound.number.desc()
    worth = func.sum(AuctionRound.price_wei * AuctionRound.volume_us)
    query = select(
        begin.label("start"),
        func.count().label("rounds"),
        _first(AuctionRound.price_wei, newest_first).label("last"),
        func.min(AuctionRound.price_wei).label("low"),
        func.max(AuctionRound.price_wei).label("high"),
        func.div(worth, func.sum(AuctionRound.volume_us)).label("mean"),
        func.sum(AuctionRound.volume_us).label("volume"),
        _first(AuctionRound.bid_nodes, newest_first).label("bid_nodes"),
        _first(AuctionRound.ask_nodes, newest_first).label("ask_nodes"),
    )
    return session.execute(_traded(query, tier_id, zone, start, end).group_by(begin).order_by(begin)).all()


def wait_buckets(
    session: Session, tier_id: int, zone: str, start: datetime, end: datetime, bucket: timedelta
) -> dict[datetime, tuple[int, int]]:
    """Median and 90th percentile of the milliseconds from funding to match, in the same steps."""
    begin = func.date_bin(bucket, AuctionRound.cleared_at, start)
    waits = func.jsonb_array_elements_text(AuctionRound.waits_ms).table_valued("value").render_derived()
    wait = cast(waits.c.value, Integer)
    median, slow = (func.percentile_disc(share).within_group(wait) for share in (0.5, 0.9))
    query = select(begin, median, slow).select_from(AuctionRound).join(waits, waits.c.value.is_not(None))
    rows = session.execute(_traded(query, tier_id, zone, start, end).group_by(begin))
    return {row[0]: (row[1], row[2]) for row in rows}


def _without_orders() -> Select[AuctionRound]:
    heavy = (AuctionRound.book, AuctionRound.owners, AuctionRound.matches, AuctionRound.waits_ms)
    return select(AuctionRound).options(*(defer(column, raiseload=True) for column in heavy))


def _traded(query: Any, tier_id: int, zone: str, start: datetime, end: datetime) -> Any:
    return query.where(
        AuctionRound.tier_id == tier_id,
        AuctionRound.zone == zone,
        AuctionRound.volume_us > 0,
        AuctionRound.cleared_at >= start,
        AuctionRound.cleared_at < end,
    )


def _first(column: Any, order: Any) -> Any:
    return func.array_agg(aggregate_order_by(column, order))[1]
