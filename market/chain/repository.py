"""Queries of blocks, events and transaction intents."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Select, and_, delete, exists, false, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session, aliased

from market.chain.contracts.codec import ChainEvent, decode_log
from market.chain.models import ChainBlock, ChainCursor, ChainLog, TxAttempt, TxIntent
from market.chain.rpc.client import Block
from market.domain.lifecycle import IntentStatus
from market.platform.db.rows import from_row

UNMINED = (IntentStatus.SIGNED, IntentStatus.BROADCAST)
IN_FLIGHT = (*UNMINED, IntentStatus.MINED)
DEPOSIT = "deposit"
"""Kind of the intents that add to a payer's balance; their subject is the payer."""


def locked_intent(session: Session, intent_id: int) -> TxIntent:
    return session.scalars(select(TxIntent).where(TxIntent.id == intent_id).with_for_update()).one()


def next_queued(session: Session, account: str, after: int) -> TxIntent | None:
    """Return the account's oldest queued intent with an id above ``after``.

    A deposit waits until the earlier ones of its subject are mined: their permits have consecutive nonces.
    """
    earlier = aliased(TxIntent)
    unmined = exists().where(
        earlier.subject == TxIntent.subject,
        earlier.kind == DEPOSIT,
        earlier.id < TxIntent.id,
        earlier.status.in_((IntentStatus.QUEUED, *UNMINED)),
    )
    mine = TxIntent.account == account, TxIntent.status == IntentStatus.QUEUED
    waiting = select(TxIntent).where(*mine, TxIntent.id > after, or_(TxIntent.kind != DEPOSIT, ~unmined))
    return session.scalar(waiting.order_by(TxIntent.id).limit(1))


def open_statuses(session: Session, account: str, signer: str) -> set[IntentStatus]:
    """Return the statuses of the unfinished intents of the signer and of its account's queue."""
    queued = and_(TxIntent.account == account, TxIntent.status == IntentStatus.QUEUED)
    mine = and_(TxIntent.signer == signer, TxIntent.status.in_(IN_FLIGHT))
    return set(session.scalars(select(TxIntent.status).where(or_(queued, mine)).distinct()))


def sent_intents(session: Session, signer: str, statuses: Sequence[IntentStatus]) -> list[TxIntent]:
    """Return the signer's intents of these statuses, by nonce."""
    mine = select(TxIntent).where(TxIntent.signer == signer, TxIntent.status.in_(statuses))
    return list(session.scalars(mine.order_by(TxIntent.nonce)))


def next_nonce(session: Session, signer: str) -> int:
    """Return one more than the highest nonce that the signer has signed; 0 at first."""
    highest = session.scalar(select(func.max(TxAttempt.nonce)).where(TxAttempt.signer == signer))
    return 0 if highest is None else highest + 1


def missing_nonces(session: Session, signer: str, start: int) -> list[int]:
    """Return the nonces from ``start`` below the signer's highest for which nothing was signed."""
    signed = select(TxAttempt.nonce).where(TxAttempt.signer == signer, TxAttempt.nonce >= start)
    return sorted(set(range(start, next_nonce(session, signer))) - set(session.scalars(signed)))


def amount_signed_since(session: Session, account: str, since: datetime) -> int:
    """Return the wei of ZEN in an account's intents signed since then, except reverted ones."""
    signed = exists().where(TxAttempt.intent_id == TxIntent.id, TxAttempt.created_at > since)
    mine = (TxIntent.account == account, TxIntent.status != IntentStatus.REVERTED)
    total = select(func.sum(TxIntent.amount)).where(*mine, signed)
    return int(session.scalar(total) or 0)


def gas_signed_since(session: Session, signer: str, since: datetime) -> int:
    """Return the maximum gas cost of the signatures since then in wei, one per nonce."""
    highest = (
        select(func.max(TxAttempt.gas_limit * TxAttempt.max_fee).label("cost"))
        .where(TxAttempt.signer == signer, TxAttempt.created_at > since)
        .group_by(TxAttempt.nonce)
        .subquery()
    )
    return int(session.scalar(select(func.sum(highest.c.cost))) or 0)


def cursor(session: Session) -> ChainCursor | None:
    return session.scalar(select(ChainCursor))


def locked_cursor(session: Session) -> ChainCursor | None:
    return session.scalar(select(ChainCursor).with_for_update())


def add_blocks(session: Session, blocks: Sequence[Block], logs: Sequence[ChainLog]) -> None:
    """Store canonical blocks with their logs; orphans among them become canonical again."""
    rows = [
        {
            "hash": block.hash,
            "number": block.number,
            "parent_hash": block.parent_hash,
            "timestamp": block.timestamp,
            "canonical": True,
        }
        for block in blocks
    ]
    statement = insert(ChainBlock).on_conflict_do_update(index_elements=[ChainBlock.hash], set_={"canonical": True})
    session.execute(statement, rows)
    if logs:  # a block's logs never change
        fields = [column.name for column in ChainLog.__table__.columns]
        values = [{name: getattr(log, name) for name in fields} for log in logs]
        session.execute(insert(ChainLog).on_conflict_do_nothing(), values)


def canonical_blocks(session: Session, after: int, until: int, limit: int) -> list[tuple[int, str]]:
    """Return (number, hash) of the lowest ``limit`` canonical blocks in (after, until]."""
    found = select(ChainBlock.number, ChainBlock.hash).where(
        ChainBlock.canonical, ChainBlock.number > after, ChainBlock.number <= until
    )
    return [(number, hash) for number, hash in session.execute(found.order_by(ChainBlock.number).limit(limit))]


def canonical_hash(session: Session, number: int) -> str | None:
    return session.scalar(select(ChainBlock.hash).where(ChainBlock.number == number, ChainBlock.canonical))


def orphan_above(session: Session, number: int) -> None:
    session.execute(update(ChainBlock).where(ChainBlock.number > number, ChainBlock.canonical).values(canonical=False))


def canonical_events(session: Session, after: int, until: int) -> list[ChainEvent]:
    """Return the decoded events of canonical blocks in (after, until], in the chain's order."""
    return _events(session, ChainBlock.number > after, ChainBlock.number <= until)


def waiting_intents(session: Session) -> dict[str, int]:
    """Return the number of blocked queued intents by reason, such as a limit of the hot key."""
    waiting = select(TxIntent.reason, func.count()).where(
        TxIntent.status == IntentStatus.QUEUED, TxIntent.reason.is_not(None)
    )
    return {str(reason): count for reason, count in session.execute(waiting.group_by(TxIntent.reason))}


def final_events(session: Session, topic: str) -> list[ChainEvent]:
    """Return the final events with the indexed ``topic`` (0x hex), in the chain's order."""
    final = select(ChainCursor.finalised_number).scalar_subquery()
    return _events(session, ChainLog.topics.contains([topic]), ChainBlock.number <= final)


def final_events_about(session: Session, topics: Collection[str]) -> list[ChainEvent]:
    """Return the final events with any of these indexed topics, in the chain's order."""
    final = select(ChainCursor.finalised_number).scalar_subquery()
    is_named = or_(false(), *(ChainLog.topics.contains([topic]) for topic in topics))
    return _events(session, is_named, ChainBlock.number <= final)


def final_events_with(session: Session, event: str, topics: Collection[str]) -> list[ChainEvent]:
    """Return the final events with the first topic ``event`` and any of ``topics``, in order."""
    if not topics:
        return []
    final = select(ChainCursor.finalised_number).scalar_subquery()
    matches = or_(*(ChainLog.topics.contains([event, topic]) for topic in topics))
    return _events(session, matches, ChainBlock.number <= final)


def newest_final_events(session: Session, topic: str, limit: int) -> list[ChainEvent]:
    """Return the newest final events with the indexed ``topic``, newest first."""
    final = select(ChainCursor.finalised_number).scalar_subquery()
    query = _logs(ChainLog.topics.contains([topic]), ChainBlock.number <= final)
    newest = query.order_by(ChainBlock.number.desc(), ChainLog.log_index.desc()).limit(limit)
    return _decoded(session, newest)


def _events(session: Session, *conditions: ColumnElement[bool]) -> list[ChainEvent]:
    return _decoded(session, _logs(*conditions).order_by(ChainBlock.number, ChainLog.log_index))


def _logs(*conditions: ColumnElement[bool]) -> Select[ChainLog, ChainBlock]:
    joined = select(ChainLog, ChainBlock).join(ChainBlock, ChainBlock.hash == ChainLog.block_hash)
    return joined.where(ChainBlock.canonical, *conditions)


def _decoded(session: Session, query: Select[ChainLog, ChainBlock]) -> list[ChainEvent]:
    events = []
    for log, block in session.execute(query):
        decoded = decode_log(log.contract, log.topics, log.data)
        if decoded is not None:
            name, args = decoded
            at = {"block_number": block.number, "timestamp": block.timestamp}
            events.append(from_row(ChainEvent, log, name=name, args=args, **at))
    return events


def drop_empty_blocks(session: Session, below: int) -> None:
    """Delete blocks without logs below a final height."""
    has_logs = exists().where(ChainLog.block_hash == ChainBlock.hash)
    session.execute(delete(ChainBlock).where(and_(ChainBlock.number < below, ~has_logs)))
