"""Jobs: list, timeline, rounds, units with verdicts, checkpoints, settlement lines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Numeric, Select, cast, func, select
from sqlalchemy.orm import Session

from market.console.tables import PAGE_ROWS
from market.domain.lifecycle import UnitStatus
from market.domain.verification.lifecycle import SampleStatus
from market.jobs.models import LOWER_NAME, Job
from market.payments.settlement.models import SettlementBatch, SettlementLine
from market.platform.db.rows import from_row
from market.platform.events.models import AuditEvent
from market.training.checkpoints.models import Checkpoint, Pin
from market.training.units.models import Unit
from market.verification.samples.models import Sample

MAX_EVENTS = 100
MAX_NAMED = 2_000
"""Jobs that a search by name covers."""
MAX_ROUNDS = 500
"""Points of one chart; the newest ones."""

_FIRST_AFTER_HEX = "g"
_ADDRESS_LENGTH = 42


@dataclass(frozen=True, slots=True)
class Move:
    """One transition in a job's audit log."""

    at: datetime
    event: str
    from_status: str | None
    to_status: str | None
    reason: str | None
    actor: str


@dataclass(frozen=True, slots=True)
class RoundPoint:
    """One round. Losses are decimal strings; ``uploaded_bytes`` is the sum over its units."""

    round: int
    at: datetime | None
    validation_loss: str | None
    train_loss: str | None
    uploaded_bytes: int
    included: int
    excluded: int
    lost: int


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Sampled segments of a unit, and those that passed or failed."""

    drawn: int = 0
    passed: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointLine:
    """One checkpoint with its proven copies."""

    round: int
    cid: str
    model_cid: str
    validation_loss: str | None
    validation_error: str | None
    validation_samples: int | None
    created_at: datetime
    pins: Sequence[str]


@dataclass(frozen=True, slots=True)
class SettledLine:
    """A job's share of one batch."""

    batch_id: int | None
    status: str
    units: int
    from_round: int
    to_round: int
    last: bool
    claimable_at: datetime | None
    void_reason: str | None


def job_lines(payer: str | None = None) -> Select[*tuple[Any, ...]]:
    """Return the query of jobs as lines of a list, of one payer or all."""
    query = select(
        Job.id,
        Job.request["name"].astext.label("name"),
        *(Job.payer, Job.status, Job.reason, Job.tier_id, Job.nodes, Job.current_round, Job.rounds),
        *(Job.budget_wei, Job.paid_wei, Job.fee_wei, Job.created_at),
    )
    return query if payer is None else query.where(Job.payer == payer)


def matches(words: str) -> ColumnElement[bool]:
    """Return the condition for a payer, or a prefix of an id or of a name; each has its index."""
    prefix = words.lower()
    if len(words) == _ADDRESS_LENGTH and prefix.startswith("0x"):
        return Job.payer == words
    if prefix.startswith("0x"):
        return (Job.id >= prefix) & (Job.id < prefix + _FIRST_AFTER_HEX)
    # The limit keeps the planner from reading all jobs by time until enough names match.
    named = select(Job.id).where(LOWER_NAME.startswith(prefix, autoescape=True)).limit(MAX_NAMED)
    return Job.id.in_(named)


def timeline(session: Session, job_id: str) -> list[Move]:
    """Return the newest transitions of a job, oldest first."""
    query = select(AuditEvent).where(AuditEvent.subject_id == job_id, AuditEvent.subject_kind == "job")
    found = session.scalars(query.order_by(AuditEvent.id.desc()).limit(MAX_EVENTS)).all()
    return [from_row(Move, row, at=row.created_at) for row in reversed(found)]


def rounds(session: Session, job_id: str) -> list[RoundPoint]:
    """Return the newest rounds, oldest first. Round 0 has the initial loss."""
    is_included, is_excluded = Unit.included.is_(True), Unit.included.is_(False)
    by_round = (
        select(
            (Unit.round + 1).label("round"),  # a checkpoint is the model after its round
            func.sum(Unit.uploaded_bytes).label("uploaded_bytes"),
            func.round(func.avg(cast(Unit.train_loss, Numeric)).filter(is_included), 6).label("train_loss"),
            func.count().filter(is_included).label("included"),
            func.count().filter(is_excluded).label("excluded"),
            func.count().filter(Unit.status.in_((UnitStatus.LOST, UnitStatus.REJECTED))).label("lost"),
        )
        .where(Unit.job_id == job_id)
        .group_by(Unit.round)
        .subquery()
    )
    ends = (
        select(Checkpoint.round, Checkpoint.created_at, Checkpoint.validation_loss)
        .where(Checkpoint.job_id == job_id)
        .subquery()
    )
    number = func.coalesce(by_round.c.round, ends.c.round)
    query = (
        select(
            number.label("round"),
            ends.c.created_at.label("at"),
            ends.c.validation_loss,
            by_round.c.train_loss,
            *(func.coalesce(by_round.c[name], 0).label(name) for name in _COUNTS),
        )
        .select_from(by_round.outerjoin(ends, ends.c.round == by_round.c.round, full=True))
        .order_by(number.desc())
        .limit(MAX_ROUNDS)
    )
    points = session.execute(query).all()
    return [
        from_row(RoundPoint, row, train_loss=None if row.train_loss is None else str(row.train_loss))
        for row in reversed(points)
    ]


_COUNTS = ("uploaded_bytes", "included", "excluded", "lost")


def unit_lines(job_id: str) -> Select[*tuple[Any, ...]]:
    """Return the query of a job's units as lines of a list."""
    return select(
        *(Unit.id, Unit.round, Unit.slot, Unit.provider, Unit.status, Unit.reason, Unit.included),
        *(Unit.uploaded_bytes, Unit.sampling_bps, Unit.dispute_id),
    ).where(Unit.job_id == job_id)


def verdicts(session: Session, unit_ids: Sequence[int]) -> Mapping[int, Verdicts]:
    """Return the samples of these units by outcome; units without a sample are missing."""
    query = (
        select(
            Sample.unit_id,
            func.count(),
            func.count().filter(Sample.status == SampleStatus.PASSED),
            func.count().filter(Sample.status == SampleStatus.FAILED),
        )
        .where(Sample.unit_id.in_(unit_ids))
        .group_by(Sample.unit_id)
    )
    return {unit_id: Verdicts(*counts) for unit_id, *counts in session.execute(query).tuples()}


def checkpoints(session: Session, job_id: str) -> list[CheckpointLine]:
    """Return a job's newest checkpoints with the providers that proved a copy, newest first."""
    query = select(Checkpoint).where(Checkpoint.job_id == job_id).order_by(Checkpoint.round.desc()).limit(PAGE_ROWS)
    found = session.scalars(query).all()
    holders: dict[int, list[str]] = {}
    pins = select(Pin.checkpoint_id, Pin.provider).where(Pin.checkpoint_id.in_([row.id for row in found]))
    for checkpoint_id, provider in session.execute(pins.order_by(Pin.checkpoint_id, Pin.provider)).tuples():
        holders.setdefault(checkpoint_id, []).append(provider)
    return [from_row(CheckpointLine, row, pins=holders.get(row.id, [])) for row in found]


def settled_lines(session: Session, job_id: str) -> list[SettledLine]:
    """Return the job's lines in settlement batches, oldest first."""
    query = (
        select(SettlementLine, SettlementBatch)
        .join(SettlementBatch, SettlementBatch.id == SettlementLine.settlement_id)
        .where(SettlementLine.job_id == job_id)
        .order_by(SettlementLine.settlement_id)
        .limit(PAGE_ROWS)
    )
    return [
        from_row(
            SettledLine,
            line,
            batch_id=batch.batch_id,
            claimable_at=batch.claimable_at,
            void_reason=batch.void_reason,
        )
        for line, batch in session.execute(query).tuples()
    ]
