"""Queries on auction rounds."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import CTE, ColumnElement, Integer, Row, Select, any_, cast, func, select, true, tuple_, update
from sqlalchemy.dialects.postgresql import aggregate_order_by, insert
from sqlalchemy.orm import Session, defer

from market.auctions.models import HAS_ORDERS, AuctionRound
from market.domain.lifecycle import AuctionStatus

_BOOKS_LOCK = 0x626F6F6B  # "book"


def lock_books(session: Session, tier_id: int) -> bool:
    """Lock all books of a tier for this transaction; return False if another one holds them."""
    return bool(session.scalar(select(func.pg_try_advisory_xact_lock(_BOOKS_LOCK, tier_id))))


def insert_round(session: Session, **values: object) -> None:
    """Insert a round unless it exists."""
    session.execute(insert(AuctionRound).values(**values).on_conflict_do_nothing())


def zones(session: Session, tier_id: int) -> set[str]:
    """Return the zones of a tier's books."""
    return set(session.scalars(select(AuctionRound.zone).where(AuctionRound.tier_id == tier_id).distinct()))


def due_rounds(session: Session, tier_id: int, now: datetime) -> Sequence[AuctionRound]:
    """Return a tier's open rounds past their close time, in the random order of their secrets."""
    query = select(AuctionRound).where(
        AuctionRound.tier_id == tier_id, AuctionRound.status == AuctionStatus.OPEN, AuctionRound.closes_at <= now
    )
    return session.scalars(query.order_by(AuctionRound.secret)).all()


def closed_rounds(session: Session, tier_id: int | None = None) -> Sequence[AuctionRound]:
    """Return rounds that wait for their seed block."""
    query = select(AuctionRound).where(AuctionRound.status == AuctionStatus.CLOSED)
    if tier_id is not None:
        query = query.where(AuctionRound.tier_id == tier_id)
    return session.scalars(query.order_by(AuctionRound.id)).all()


def lock_closed(session: Session, round_id: int) -> AuctionRound | None:
    """Lock a round if it is closed and not cleared."""
    query = select(AuctionRound).where(AuctionRound.id == round_id, AuctionRound.status == AuctionStatus.CLOSED)
    return session.scalar(query.with_for_update().execution_options(populate_existing=True))


def name_seed_block(session: Session, round_id: int, number: int) -> None:
    """Set the seed block unless it is set."""
    query = update(AuctionRound).where(AuctionRound.id == round_id, AuctionRound.seed_block.is_(None))
    session.execute(query.values(seed_block=number))


def newest_of_each_book(session: Session) -> Sequence[AuctionRound]:
    """Return the newest round of every book without its orders, by tier and zone."""
    books = _books()
    of_book = (AuctionRound.tier_id == books.c.tier_id, AuctionRound.zone == books.c.zone)
    newest = select(AuctionRound.id).where(*of_book).order_by(AuctionRound.number.desc()).limit(1).scalar_subquery()
    ids = func.array(select(newest).select_from(books).scalar_subquery())  # an array is read before the rounds
    query = _without_orders().where(AuctionRound.id == any_(ids))
    return session.scalars(query.order_by(AuctionRound.tier_id, AuctionRound.zone)).all()


def _books() -> CTE:
    """Return (tier, zone) of all books, one index step each: books are few, rounds many."""
    columns = (AuctionRound.tier_id, AuctionRound.zone)
    first = select(*columns).order_by(*columns).limit(1)
    books = select(*first.subquery().c).cte("books", recursive=True)
    after = select(*columns).where(tuple_(*columns) > tuple_(books.c.tier_id, books.c.zone))
    following = after.order_by(*columns).limit(1).lateral()
    return books.union_all(select(*following.c).select_from(books.join(following, true())))


def find(session: Session, tier_id: int, zone: str, number: int | None) -> AuctionRound | None:
    """Return the round of a book with this number; None: the newest one."""
    query = select(AuctionRound).where(AuctionRound.tier_id == tier_id, AuctionRound.zone == zone)
    if number is not None:
        query = query.where(AuctionRound.number == number)
    return session.scalar(query.order_by(AuctionRound.number.desc()).limit(1))


def page(session: Session, tier_id: int, zone: str, before: int | None, limit: int) -> Sequence[AuctionRound]:
    """Return a book's rounds below the number ``before`` without their orders, newest first."""
    query = _without_orders().where(AuctionRound.tier_id == tier_id, AuctionRound.zone == zone)
    if before is not None:
        query = query.where(AuctionRound.number < before)
    return session.scalars(query.order_by(AuctionRound.number.desc()).limit(limit)).all()


def drop_orders(session: Session, before: datetime, kept: Collection[int], limit: int) -> int:
    """Delete the orders of up to ``limit`` rounds cleared before then; return their number."""
    due = select(AuctionRound.id).where(HAS_ORDERS, AuctionRound.cleared_at < before, AuctionRound.id.not_in(kept))
    rounds = AuctionRound.id.in_(due.order_by(AuctionRound.cleared_at).limit(limit))
    dropped = update(AuctionRound).where(rounds).values(book={}, owners={}).returning(AuctionRound.id)
    return len(session.scalars(dropped).all())


def last_trades(session: Session, tier_id: int | None = None) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return (tier, zone, price) of the last trade in each book, of a tier or all; newest first."""
    return session.execute(_last_of_each_book(tier_id, AuctionRound.volume_us > 0, AuctionRound.price_wei)).all()


def last_cleared(session: Session) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return (tier, zone, nodes wanted, nodes offered) of the newest cleared round of each book."""
    is_cleared = AuctionRound.status == AuctionStatus.CLEARED
    columns = (AuctionRound.bid_nodes, AuctionRound.ask_nodes)
    return session.execute(_last_of_each_book(None, is_cleared, *columns)).all()


def _last_of_each_book(tier_id: int | None, condition: ColumnElement[bool], *columns: Any) -> Select[*tuple[Any, ...]]:
    """Return (tier, zone, columns) of each book's newest cleared round with the condition."""
    books = _books()
    of_book = (AuctionRound.tier_id == books.c.tier_id, AuctionRound.zone == books.c.zone)
    order = (AuctionRound.cleared_at.desc(), AuctionRound.id.desc())
    cleared = select(*columns, AuctionRound.cleared_at, AuctionRound.id).where(
        *of_book, AuctionRound.cleared_at.is_not(None), condition
    )
    last = cleared.order_by(*order).limit(1).lateral()
    query = select(*books.c, *(last.c[column.key] for column in columns)).select_from(books.join(last, true()))
    if tier_id is not None:
        query = query.where(books.c.tier_id == tier_id)
    return query.order_by(last.c.cleared_at.desc(), last.c.id.desc())


def price_buckets(
    session: Session, tier_id: int, zone: str, start: datetime, end: datetime, bucket: timedelta
) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return a book's trades from ``start`` to before ``end`` by bucket, without empty buckets."""
    begin = func.date_bin(bucket, AuctionRound.cleared_at, start)
    newest_first = AuctionRound.number.desc()
    worth = func.sum(AuctionRound.price_wei * AuctionRound.volume_us)
    query = select(
        begin.label("start"),
        func.count().label("rounds"),
        _first(AuctionRound.price_wei, newest_first).label("last_wei"),
        func.min(AuctionRound.price_wei).label("low_wei"),
        func.max(AuctionRound.price_wei).label("high_wei"),
        func.div(worth, func.sum(AuctionRound.volume_us)).label("mean_wei"),
        func.sum(AuctionRound.volume_us).label("volume_us"),
        _first(AuctionRound.bid_nodes, newest_first).label("bid_nodes"),
        _first(AuctionRound.ask_nodes, newest_first).label("ask_nodes"),
    )
    return session.execute(_traded(query, tier_id, zone, start, end).group_by(begin).order_by(begin)).all()


def wait_buckets(
    session: Session, tier_id: int, zone: str, start: datetime, end: datetime, bucket: timedelta
) -> dict[datetime, tuple[int, int]]:
    """Return median and 90th percentile of the milliseconds from funding to match, by bucket."""
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
