"""Treasury from the ledger and final events: balance, fees, funds, emission."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import DateTime, column, func, literal, select, true
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Session

from market.chain.contracts.codec import ChainEvent
from market.chain.models import ChainBlock
from market.chain.service import final_events_named
from market.domain.network import BPS, NetworkParameters
from market.jobs.models import Job
from market.ledger.models import LedgerJournal, LedgerPosting
from market.ledger.service import balance
from market.platform.db.base import from_unix

ACCOUNT = "treasury"
PAYMENTS = 50
"""Newest payments that a page shows."""
_DAY = 86_400
_ONE_DAY = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Fund:
    """Destination of the treasury, as the contract computes it at the newest final block."""

    name: str
    share_bps: int
    available_wei: int
    spent_wei: int


@dataclass(frozen=True, slots=True)
class Payment:
    """Final payment out of a fund."""

    fund: str
    to: str
    amount_wei: int
    purpose: str
    tx_hash: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Treasury:
    """Treasury at the newest final block. Amounts in wei. ``payments``: the newest ones."""

    balance_wei: int
    received_wei: int
    funds: tuple[Fund, ...]
    payments: tuple[Payment, ...]
    payment_count: int


@dataclass(frozen=True, slots=True)
class Year:
    """Year of the emission's schedule, and the part of it that was released."""

    number: int
    planned_wei: int
    released_wei: int


@dataclass(frozen=True, slots=True)
class Movement:
    """Line of the ledger's account of the treasury, with the balance after it."""

    at: datetime
    block: int
    event: str
    key: str
    amount_wei: int
    balance_wei: int


def read_treasury(session: Session, network: NetworkParameters) -> Treasury:
    """Return balance, funds and payments; a fund's share is floored as in the contract."""
    names = [name for name, _ in network.treasury_split_bps]
    spent = [_payment(event, names) for event in final_events_named(session, "Treasury", "Spent")]
    held = balance(session, ACCOUNT)
    received = held + sum(payment.amount_wei for payment in spent)
    funds = []
    for name, share_bps in network.treasury_split_bps:
        paid = sum(payment.amount_wei for payment in spent if payment.fund == name)
        funds.append(Fund(name, share_bps, received * share_bps // BPS - paid, paid))
    return Treasury(held, received, tuple(funds), tuple(reversed(spent[-PAYMENTS:])), len(spent))


def _payment(event: ChainEvent, names: Sequence[str]) -> Payment:
    args = event.args
    raw = bytes.fromhex(str(args["purpose"]).removeprefix("0x")).rstrip(b"\0")
    purpose = raw.decode() if raw.isascii() and raw.decode().isprintable() else str(args["purpose"])
    fund = names[args["destination"]]
    return Payment(fund, args["to"], args["amount"], purpose, event.tx_hash, from_unix(event.timestamp))


def movements(session: Session) -> Iterator[Movement]:
    """Yield the lines of the treasury's account in the order of the chain."""
    statement = (
        select(ChainBlock.timestamp, ChainBlock.number, LedgerJournal.kind, LedgerJournal.key, LedgerPosting.amount)
        .join(LedgerJournal, LedgerJournal.id == LedgerPosting.journal_id)
        .join(ChainBlock, (ChainBlock.number == LedgerJournal.block_number) & ChainBlock.canonical)
        .where(LedgerPosting.account == ACCOUNT)
        .order_by(LedgerPosting.journal_id, LedgerPosting.line)
    )
    total = 0
    for timestamp, block, kind, key, amount in session.execute(statement):
        total += amount
        yield Movement(from_unix(timestamp), block, kind, key, amount, total)


def daily_balances(session: Session, days: int, now: datetime) -> list[tuple[int, int]]:
    """Return (Unix seconds of the day, balance at its end) for days with movements."""
    day = (ChainBlock.timestamp - ChainBlock.timestamp % _DAY).label("day")
    statement = (
        select(day, func.sum(LedgerPosting.amount))
        .join(LedgerJournal, LedgerJournal.id == LedgerPosting.journal_id)
        .join(ChainBlock, (ChainBlock.number == LedgerJournal.block_number) & ChainBlock.canonical)
        .where(LedgerPosting.account == ACCOUNT)
        .group_by(day)
        .order_by(day)
    )
    total, found = 0, []
    for start, amount in session.execute(statement).tuples():
        total += int(amount)
        found.append((int(start), total))
    first = (now - timedelta(days=days)).timestamp()
    return [point for point in found if point[0] >= first]


def daily_fees(session: Session, days: int, now: datetime) -> dict[int, dict[int, int]]:
    """Return the fees in wei of settled jobs, by Unix seconds of the day and tier."""
    first = now - timedelta(days=days)
    seconds = range(int(first.timestamp()) // _DAY * _DAY, int(now.timestamp()) + 1, _DAY)
    starts = literal([from_unix(start) for start in seconds], ARRAY(DateTime(timezone=True)))
    day = func.unnest(starts).table_valued(column("start", DateTime(timezone=True)), name="day").render_derived()
    # One range of the index per day needs no sort of all jobs.
    fees = (
        select(Job.tier_id, func.sum(Job.fee_wei).label("fee"))
        .where(Job.settled_at > first, Job.settled_at >= day.c.start, Job.settled_at < day.c.start + _ONE_DAY)
        .group_by(Job.tier_id)
        .lateral()
    )
    statement = (
        select(day.c.start, fees.c.tier_id, fees.c.fee).select_from(day.join(fees, true())).order_by(day.c.start)
    )
    found: dict[int, dict[int, int]] = {}
    for start, tier_id, fee in session.execute(statement.order_by(day.c.start)).tuples():
        found.setdefault(int(start.timestamp()), {})[tier_id] = int(fee or 0)
    return found


def read_emission(session: Session, network: NetworkParameters) -> list[Year]:
    """Return the schedule; releases fill its years in their order."""
    events = final_events_named(session, "Emission", "Released")
    left = int(events[-1].args["total"]) if events else 0
    years = []
    for number, planned in enumerate(network.emission_yearly_wei, 1):
        years.append(Year(number, planned, min(left, planned)))
        left = max(0, left - planned)
    return years
