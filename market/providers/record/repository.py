"""Queries of heartbeats, epochs, committed periods and downtime penalties."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import and_, case, delete, func, or_, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from market.domain.lifecycle import ProviderStatus
from market.domain.nodes.reliability import OLDEST_EPOCHS, Evidence
from market.domain.nodes.uptime import EPOCH_HOURS
from market.domain.rewards import Work
from market.platform.db.rows import from_row
from market.providers.models import (
    CommittedPeriod,
    DowntimePenalty,
    EvaluatedEpoch,
    HeartbeatHour,
    Provider,
    ProviderEpoch,
    Stake,
)


def mark_minute(session: Session, address: str, hour: int, bit: int) -> None:
    """Record a heartbeat in a minute, and the hour's lowest active stake. Idempotent."""
    is_active = Provider.status == ProviderStatus.ACTIVE
    stake = (
        select(case((is_active, func.coalesce(Stake.stake_wei, 0)), else_=0))
        .select_from(Provider)
        .outerjoin(Stake, Stake.address == Provider.address)
        .where(Provider.address == address)
        .scalar_subquery()
    )
    statement = insert(HeartbeatHour).values(hour=hour, provider=address, minutes=bit, stake_wei=stake)
    session.execute(
        statement.on_conflict_do_update(
            index_elements=[HeartbeatHour.hour, HeartbeatHour.provider],
            set_={
                "minutes": HeartbeatHour.minutes.bitwise_or(bit),
                "stake_wei": func.least(HeartbeatHour.stake_wei, statement.excluded.stake_wei),
            },
            where=HeartbeatHour.minutes.bitwise_and(bit) == 0,
        )
    )


def oldest_hour(session: Session) -> int | None:
    return session.scalar(select(func.min(HeartbeatHour.hour)))


def hours_of(session: Session, epoch: int) -> Sequence[HeartbeatHour]:
    """Return the heartbeats of an epoch, by hour and node."""
    first = epoch * EPOCH_HOURS
    query = select(HeartbeatHour).where(HeartbeatHour.hour >= first, HeartbeatHour.hour < first + EPOCH_HOURS)
    return session.scalars(query.order_by(HeartbeatHour.hour, HeartbeatHour.provider)).all()


def minutes_seen(session: Session, first: int) -> dict[int, int]:
    """Return the minutes with any node's heartbeat by hour, from ``first``, and the oldest."""
    oldest = select(func.min(HeartbeatHour.hour)).scalar_subquery()
    query = select(HeartbeatHour.hour, func.bit_or(HeartbeatHour.minutes)).group_by(HeartbeatHour.hour)
    hours = or_(HeartbeatHour.hour >= first, HeartbeatHour.hour == oldest)
    return dict(session.execute(query.where(hours)).tuples().all())


def delete_hours(session: Session, epoch: int) -> None:
    """Delete the heartbeats of an epoch and of all before it."""
    session.execute(delete(HeartbeatHour).where(HeartbeatHour.hour < (epoch + 1) * EPOCH_HOURS))


def add_period(session: Session, address: str, start: datetime, end: datetime) -> None:
    """Store a committed period; of several with one start the longest counts."""
    statement = insert(CommittedPeriod).values(address=address, starts_at=start, ends_at=end)
    session.execute(
        statement.on_conflict_do_update(
            index_elements=[CommittedPeriod.address, CommittedPeriod.starts_at],
            set_={"ends_at": func.greatest(CommittedPeriod.ends_at, statement.excluded.ends_at)},
        )
    )


def periods_between(session: Session, start: datetime, end: datetime) -> dict[str, list[tuple[float, float]]]:
    """Return the committed periods that overlap this time, in Unix seconds, by wallet."""
    query = select(CommittedPeriod).where(CommittedPeriod.starts_at < end, CommittedPeriod.ends_at > start)
    found: dict[str, list[tuple[float, float]]] = {}
    for row in session.scalars(query):
        found.setdefault(row.address, []).append((row.starts_at.timestamp(), row.ends_at.timestamp()))
    return found


def evaluated_epoch(session: Session, epoch: int) -> EvaluatedEpoch | None:
    return session.get(EvaluatedEpoch, epoch)


def add_evaluated_epoch(session: Session, epoch: int, *, usual_nodes: int, counted_minutes: int) -> None:
    session.add(EvaluatedEpoch(epoch=epoch, usual_nodes=usual_nodes, counted_minutes=counted_minutes))


def last_evaluated_epoch(session: Session) -> int | None:
    return session.scalar(select(func.max(EvaluatedEpoch.epoch)))


def add(session: Session, address: str, epoch: int, **counts: int) -> None:
    """Add to a node's counts of an epoch, and mark its score for review."""
    names = [c.name for c in ProviderEpoch.__table__.columns if c.name not in ("epoch", "provider", "unreviewed")]
    values = dict.fromkeys(names, 0) | counts
    statement = insert(ProviderEpoch).values(epoch=epoch, provider=address, unreviewed=True, **values)
    more = {name: getattr(ProviderEpoch, name) + count for name, count in counts.items()}
    session.execute(
        statement.on_conflict_do_update(
            index_elements=[ProviderEpoch.epoch, ProviderEpoch.provider], set_={**more, "unreviewed": True}
        )
    )


def unreviewed(session: Session) -> list[str]:
    """Return the nodes with counts that are not in their score yet."""
    return list(session.scalars(select(ProviderEpoch.provider).where(ProviderEpoch.unreviewed).distinct()))


def mark_all_for_review(session: Session) -> None:
    """Mark the scores of all nodes for review, because their evidence has aged."""
    newest = select(ProviderEpoch.provider, func.max(ProviderEpoch.epoch)).group_by(ProviderEpoch.provider)
    one_each = tuple_(ProviderEpoch.provider, ProviderEpoch.epoch).in_(newest)
    session.execute(update(ProviderEpoch).where(one_each).values(unreviewed=True))


def begin_review(session: Session, address: str, epoch: int) -> dict[int, Evidence]:
    """Return the evidence on a node by age at ``epoch``, and mark it as reviewed."""
    session.execute(
        update(ProviderEpoch)
        .where(ProviderEpoch.provider == address, ProviderEpoch.unreviewed)
        .values(unreviewed=False)
    )
    query = select(ProviderEpoch).where(ProviderEpoch.provider == address, ProviderEpoch.epoch >= epoch - OLDEST_EPOCHS)
    return {max(0, epoch - row.epoch): from_row(Evidence, row) for row in session.scalars(query)}


def work_between(session: Session, first: int, last: int) -> list[Work]:
    """Return the rewarded work of each node in the epochs from ``first`` to ``last``.

    The stake of a verifier counts only in epochs in which it replayed at least half of its segments.
    """
    without_result = ProviderEpoch.refused + ProviderEpoch.lost + ProviderEpoch.rejected
    is_idle = and_(Provider.kind == "verifier", ProviderEpoch.replays < without_result)
    query = (
        select(
            ProviderEpoch.provider,
            func.sum(case((is_idle, 0), else_=ProviderEpoch.stake_minutes)),
            func.sum(ProviderEpoch.served_bytes),
            func.sum(ProviderEpoch.replayed_wei),
        )
        .join(Provider, Provider.address == ProviderEpoch.provider)
        .where(ProviderEpoch.epoch >= first, ProviderEpoch.epoch <= last)
        .group_by(ProviderEpoch.provider)
    )
    return [
        Work(account, int(stake), int(served), int(replayed_wei))
        for account, stake, served, replayed_wei in session.execute(query)
    ]


def delete_epochs(session: Session, before: int) -> None:
    """Delete the records of the epochs before this one."""
    session.execute(delete(ProviderEpoch).where(ProviderEpoch.epoch < before))
    session.execute(delete(EvaluatedEpoch).where(EvaluatedEpoch.epoch < before))


def epochs_of(session: Session, address: str, limit: int) -> Sequence[ProviderEpoch]:
    query = select(ProviderEpoch).where(ProviderEpoch.provider == address)
    return session.scalars(query.order_by(ProviderEpoch.epoch.desc()).limit(limit)).all()


def first_epoch(session: Session) -> int | None:
    return session.scalar(select(func.min(ProviderEpoch.epoch)))


def all_nodes(session: Session) -> Sequence[Provider]:
    return session.scalars(select(Provider).order_by(Provider.address)).all()


def open_penalties(session: Session, since_epoch: int) -> Sequence[DowntimePenalty]:
    """Return the unexecuted penalties for epochs from ``since_epoch``, oldest first."""
    query = select(DowntimePenalty).where(DowntimePenalty.tx.is_(None), DowntimePenalty.epoch >= since_epoch)
    return session.scalars(query.order_by(DowntimePenalty.epoch, DowntimePenalty.provider)).all()


def lock_penalty(session: Session, evidence: str) -> DowntimePenalty | None:
    return session.scalar(select(DowntimePenalty).where(DowntimePenalty.evidence == evidence).with_for_update())


def penalties_of(session: Session, address: str, limit: int) -> Sequence[DowntimePenalty]:
    query = select(DowntimePenalty).where(DowntimePenalty.provider == address)
    return session.scalars(query.order_by(DowntimePenalty.epoch.desc()).limit(limit)).all()
