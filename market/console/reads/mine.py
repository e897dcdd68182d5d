"""The caller's own facts: a user's spending and credentials, a node's work and deadlines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from sqlalchemy import Date, cast, func, select
from sqlalchemy.orm import Session

from market.accounts import service as accounts
from market.accounts import spending
from market.accounts.models import Credential
from market.accounts.organisations import service as organisations
from market.accounts.organisations.models import Organisation
from market.accounts.spending import Usage
from market.console.reads.disputes import OPEN, Due, dispute_lines, due_of, has_status
from market.console.tables import PAGE_ROWS
from market.domain.lifecycle import UNIT_DECIDED, UnitStatus
from market.domain.money import unit_price
from market.domain.verification.lifecycle import SampleStatus
from market.jobs.models import Job, Slot
from market.platform.db.rows import from_row
from market.providers.models import Provider
from market.training.leases.models import Lease
from market.training.units.models import Unit
from market.verification.disputes.models import Dispute
from market.verification.samples.models import Sample

SPEND_DAYS = 30


@dataclass(frozen=True, slots=True)
class SpendDay:
    """Cost of the jobs that settled on a day, fee included."""

    day: date
    cost_wei: int
    jobs: int


@dataclass(frozen=True, slots=True)
class Key:
    """One usable API key with its caps and spending; ``usage`` is None without caps."""

    credential: Credential
    usage: Usage | None


@dataclass(frozen=True, slots=True)
class MemberLine:
    """Member of an organisation with its caps and spending."""

    address: str
    role: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class Membership:
    """One organisation of the caller with its members and its spending."""

    organisation: Organisation
    role: str
    members: Sequence[MemberLine]
    usage: Usage


@dataclass(frozen=True, slots=True)
class LeaseLine:
    """Work that a node has now."""

    id: str
    kind: str
    job_id: str
    status: str
    step: int
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Deadline:
    """One act that a node owes, with its deadline."""

    at: datetime
    act: str
    subject: str


@dataclass(frozen=True, slots=True)
class NodeNow:
    """A node's slot, leases, deadlines, disputes, and the price of its unpaid units in wei."""

    job_id: str | None
    leases: Sequence[LeaseLine]
    deadlines: Sequence[Deadline]
    disputes: Sequence[str]
    undecided_wei: int
    verified_wei: int


def spend_by_day(session: Session, payer: str, now: datetime) -> list[SpendDay]:
    """Return the cost of a payer's settled jobs by day, without days of no cost."""
    day = cast(Job.settled_at, Date)
    since = now - timedelta(days=SPEND_DAYS)
    query = (
        select(day, func.sum(Job.paid_wei + Job.fee_wei), func.count())
        .where(Job.payer == payer, Job.settled_at >= since)
        .group_by(day)
        .order_by(day)
    )
    return [SpendDay(at, int(cost or 0), jobs) for at, cost, jobs in session.execute(query).tuples()]


def jobs_by_status(session: Session, payer: str) -> Mapping[str, int]:
    """Return the number of a payer's jobs by status."""
    query = select(Job.status, func.count()).where(Job.payer == payer).group_by(Job.status)
    return dict(session.execute(query).tuples().all())


def keys(session: Session, address: str) -> list[Key]:
    """Return the account's usable API keys, newest first."""
    return [
        Key(row, None if row.limit_id is None else spending.usage(session, row.limit_id))
        for row in accounts.list_keys(session, address)
    ]


def memberships(session: Session, address: str) -> list[Membership]:
    """Return the account's organisations, oldest first."""
    found = []
    for row in organisations.of_member(session, address):
        members = [
            MemberLine(member.address, member.role, spending.usage(session, member.limit_id))
            for member in organisations.members(session, row.id)
        ]
        role = next(member.role for member in members if member.address == address)
        found.append(Membership(row, role, members, spending.usage(session, row.limit_id)))
    return found


def node_now(session: Session, provider: Provider) -> NodeNow:
    """Return a node's present work and deadlines."""
    address = provider.address
    mine = dispute_lines().where(Dispute.provider == address, has_status(OPEN)).order_by(Dispute.created_at)
    disputed = session.execute(mine.limit(PAGE_ROWS)).all()
    due = due_of(session, disputed)
    is_open = Lease.status.in_(("offered", "active"))
    leases = select(Lease).where(Lease.holder == address, is_open).order_by(Lease.created_at).limit(PAGE_ROWS)
    unpaid = {status: _price_of(session, address, status) for status in UnitStatus if status not in UNIT_DECIDED}
    return NodeNow(
        job_id=session.scalar(select(Slot.job_id).where(Slot.provider == address)),
        leases=[from_row(LeaseLine, row) for row in session.scalars(leases)],
        deadlines=_deadlines(session, provider, due),
        disputes=[line.id for line in disputed],
        undecided_wei=sum(unpaid.values()),
        verified_wei=_price_of(session, address, UnitStatus.VERIFIED),
    )


def _price_of(session: Session, address: str, status: UnitStatus) -> int:
    """Return the gross price of a node's units of one status that no batch pays."""
    query = (
        select(Job.clearing_price_wei, Job.unit_weight_us, func.count())
        .join(Unit, Unit.job_id == Job.id)
        .where(Unit.provider == address, Unit.status == status, Unit.settlement_id.is_(None))
        .group_by(Job.clearing_price_wei, Job.unit_weight_us)
    )
    return sum(
        unit_price(price, weight) * count
        for price, weight, count in session.execute(query).tuples()
        if price is not None
    )


def _deadlines(session: Session, provider: Provider, disputed: Mapping[str, Due]) -> list[Deadline]:
    """Return what is due, the earliest first."""
    query = (
        select(Sample.reveal_deadline_at, Unit.job_id)
        .join(Unit, Unit.id == Sample.unit_id)
        .where(
            Unit.provider == provider.address,
            Sample.status == SampleStatus.DRAWN,
            Sample.reveal_deadline_at.is_not(None),
        )
        .order_by(Sample.reveal_deadline_at)
        .limit(PAGE_ROWS)
    )
    found = [Deadline(at, "reveal_state", job_id) for at, job_id in session.execute(query).tuples() if at is not None]
    if provider.rebenchmark_by is not None:
        found.append(Deadline(provider.rebenchmark_by, "pass_benchmark", provider.address))
    for dispute_id, due in disputed.items():
        if due.until is not None and provider.address in due.parties:
            found.append(Deadline(due.until, "answer_dispute", dispute_id))
    return sorted(found, key=lambda deadline: deadline.at)
