"""Queries over timelock operations, payouts, events and sent acts."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import exists, select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from market.chain.contracts.codec import ChainEvent
from market.governance.models import GovernanceEvent, PostedPayout, SentAct, TimelockOperation

_OPEN = (GovernanceEvent.acknowledged_by.is_(None), GovernanceEvent.at_deployment.is_(False))


def is_first_of_contract(session: Session, event: ChainEvent) -> bool:
    """Return True if no earlier transaction has an event of this contract: it created it."""
    other = exists().where(GovernanceEvent.contract == event.contract, GovernanceEvent.tx_hash != event.tx_hash)
    return not session.scalar(select(other))


def operations(session: Session, *, pending: bool, after: str | None, limit: int) -> list[TimelockOperation]:
    """Return operations, newest first."""
    query = select(TimelockOperation)
    if pending:
        query = query.where(TimelockOperation.ended_at.is_(None))
    last = None if after is None else session.get(TimelockOperation, after)
    if last is not None:
        place = tuple_(TimelockOperation.scheduled_at, TimelockOperation.id)
        query = query.where(place < (last.scheduled_at, last.id))
    query = query.order_by(TimelockOperation.scheduled_at.desc(), TimelockOperation.id.desc())
    return list(session.scalars(query.limit(limit)))


def operations_by_id(session: Session, ids: Collection[str]) -> Sequence[TimelockOperation]:
    return session.scalars(select(TimelockOperation).where(TimelockOperation.id.in_(ids))).all()


def payouts_after(session: Session, now: datetime, limit: int) -> list[PostedPayout]:
    """Return the payouts whose countdown ends after ``now``, the next to end first."""
    waiting = select(PostedPayout).where(PostedPayout.claimable_at > now)
    return list(session.scalars(waiting.order_by(PostedPayout.claimable_at, PostedPayout.number).limit(limit)))


def payout(session: Session, kind: str, number: int) -> PostedPayout | None:
    return session.get(PostedPayout, (kind, number))


def events(session: Session, after: int | None, limit: int) -> list[GovernanceEvent]:
    """Return events below the id ``after``, newest first."""
    query = select(GovernanceEvent)
    if after is not None:
        query = query.where(GovernanceEvent.id < after)
    return list(session.scalars(query.order_by(GovernanceEvent.id.desc()).limit(limit)))


def open_events(session: Session, limit: int) -> list[GovernanceEvent]:
    """Return the newest events that were neither sent from here nor acknowledged."""
    sent = exists().where(SentAct.tx_hash == GovernanceEvent.tx_hash)
    query = select(GovernanceEvent).where(*_OPEN, ~sent)
    return list(session.scalars(query.order_by(GovernanceEvent.id.desc()).limit(limit)))


def lock_event(session: Session, event_id: int) -> GovernanceEvent | None:
    return session.scalar(select(GovernanceEvent).where(GovernanceEvent.id == event_id).with_for_update())


def known_operations(session: Session, ids: Collection[str]) -> set[str]:
    """Return those of the operations whose proposal was sent from here or acknowledged."""
    sent = exists().where(SentAct.tx_hash == GovernanceEvent.tx_hash)
    query = select(GovernanceEvent.operation_id).where(
        GovernanceEvent.kind == "call_scheduled",
        GovernanceEvent.operation_id.in_(ids),
        sent | GovernanceEvent.acknowledged_by.is_not(None),
    )
    return {found for found in session.scalars(query) if found is not None}


def role_changes(session: Session, account: str | None) -> Sequence[GovernanceEvent]:
    """Return the last grant or revocation of each (contract, role, account)."""
    key = (GovernanceEvent.contract, GovernanceEvent.role, GovernanceEvent.account)
    query = select(GovernanceEvent).where(GovernanceEvent.role.is_not(None)).distinct(*key)
    if account is not None:
        query = query.where(GovernanceEvent.account == account)
    return session.scalars(query.order_by(*key, GovernanceEvent.id.desc())).all()


def delay_seconds(session: Session) -> int | None:
    """Return the timelock's delay by its last change."""
    changes = select(GovernanceEvent.data["seconds"].as_integer()).where(GovernanceEvent.kind == "delay_changed")
    return session.scalar(changes.order_by(GovernanceEvent.id.desc()).limit(1))


def add_sent(session: Session, tx_hash: str, act: str, stage: str, account: str) -> bool:
    """Store a sent transaction; return False if it is stored already."""
    values = {"tx_hash": tx_hash, "act": act, "stage": stage, "account": account}
    statement = insert(SentAct).values(values).on_conflict_do_nothing().returning(SentAct.tx_hash)
    return session.scalar(statement) is not None
