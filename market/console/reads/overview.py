"""Figures and alarms of the overview. Each is one indexed query of the database."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from market.auctions.models import AuctionRound
from market.chain.contracts.codec import Deployment
from market.chain.models import TxIntent
from market.chain.service import indexed_head, waiting_intents
from market.console.chain_facts import ChainFacts
from market.domain.lifecycle import DISPUTE_OPEN, IntentStatus, JobStatus
from market.domain.money import format_zen
from market.domain.network import HOUR_US, ZEN
from market.governance import service as governance
from market.jobs.models import Job
from market.ledger.models import LedgerReconciliation
from market.ledger.reconciliation import last_reconciliation
from market.payments.rewards import service as rewards
from market.platform.http.services import Services
from market.providers.models import Provider
from market.verification.disputes.models import Dispute
from market.verification.windows.omissions import outstanding

LOW_GAS_WEI = ZEN // 10
"""Native token of a signer below which it is low: about a thousand transactions at usual fees."""
LOW_BOND_WEI = 100 * ZEN
MAX_LAG_BLOCKS = 100
STUCK_AFTER = timedelta(minutes=10)
_REVERTED_IN, _SOLD_IN = timedelta(days=1), timedelta(days=1)
_MUTE_PERIODS = 5
_USUAL_UNPOSTED = 3


@dataclass(frozen=True, slots=True)
class Figures:
    """Market now. ``holdings_wei``: ZEN of each contract at the last reconciliation."""

    jobs: dict[str, int]
    gpu_hours_sold: int
    providers: dict[int | None, int]
    disputes: int
    holdings_wei: dict[str, int]
    block: int | None


@dataclass(frozen=True, slots=True)
class Alarm:
    """Condition that needs a person. ``path``: page that shows more."""

    code: str
    tone: str
    text: str
    path: str


def read_figures(session: Session, now: datetime) -> Figures:
    """Return the market's figures; sold are those of the last day."""
    counted = select(Job.status, func.count()).group_by(Job.status)
    tiers = select(Provider.tier_id, func.count()).where(Provider.status == "active", Provider.kind == "provider")
    sold = select(func.sum(AuctionRound.volume_us)).where(AuctionRound.cleared_at > now - _SOLD_IN)
    opened = select(func.count()).select_from(Dispute).where(Dispute.status.in_(DISPUTE_OPEN))
    last = last_reconciliation(session)
    held = {} if last is None else last.report.get("holdings_wei", {})
    return Figures(
        jobs=dict(session.execute(counted).tuples().all()),
        gpu_hours_sold=int(session.scalar(sold) or 0) // HOUR_US,
        providers=dict(session.execute(tiers.group_by(Provider.tier_id)).tuples().all()),
        disputes=session.scalar(opened) or 0,
        holdings_wei={name: int(wei) for name, wei in held.items()},
        block=None if last is None else last.block_number,
    )


def read_alarms(session: Session, services: Services, facts: ChainFacts | None, now: datetime) -> list[Alarm]:
    """Return all present alarms, the worst first."""
    found = [
        *_of_ledger(last_reconciliation(session), services.settings.reconcile_seconds, now),
        *_of_transactions(session, now),
        *_of_windows(session),
        *_of_rewards(session, now),
        *_of_governance(session, services),
        *_of_chain(session, facts),
    ]
    return sorted(found, key=lambda alarm: alarm.tone != "bad")


def _of_ledger(last: LedgerReconciliation | None, period: float, now: datetime) -> Iterator[Alarm]:
    if last is None:
        yield Alarm("never_compared", "warn", "The ledger was never compared with the chain.", "/system")
        return
    if not last.agrees:
        text = f"Ledger and chain differ by {format_zen(last.difference_wei)} ZEN at block {last.block_number}."
        yield Alarm("ledger_differs", "bad", text, "/treasury")
    if now - last.at > timedelta(seconds=_MUTE_PERIODS * max(period, 60)):
        minutes = int((now - last.at).total_seconds() // 60)
        text = f"The worker is mute: its last comparison of the ledger is {minutes} minutes old."
        yield Alarm("worker_mute", "bad", text, "/system")


def _of_transactions(session: Session, now: datetime) -> Iterator[Alarm]:
    unmined = TxIntent.status.in_((IntentStatus.SIGNED, IntentStatus.BROADCAST))
    stuck = select(func.count()).where(unmined, TxIntent.updated_at < now - STUCK_AFTER)
    if count := session.scalar(stuck):
        yield Alarm("transactions_stuck", "bad", f"{count} transactions wait ten minutes for a block.", "/transactions")
    for reason, count in waiting_intents(session).items():
        text = f"{count} transactions wait: {reason.replace('_', ' ')}."
        yield Alarm("transactions_wait", "warn", text, "/transactions")
    reverted = select(func.count()).where(
        TxIntent.status == IntentStatus.REVERTED, TxIntent.updated_at > now - _REVERTED_IN
    )
    if count := session.scalar(reverted):
        yield Alarm("transactions_reverted", "warn", f"{count} transactions reverted in a day.", "/transactions")


def _of_windows(session: Session) -> Iterator[Alarm]:
    counts = outstanding(session)
    if counts.late:
        text = f"{counts.late} acknowledged commitments are late in a window on chain."
        yield Alarm("windows_late", "bad", text, "/system")
    if counts.open_claims:
        yield Alarm("omission_claims", "bad", f"{counts.open_claims} omission claims are open.", "/system")


def _of_rewards(session: Session, now: datetime) -> Iterator[Alarm]:
    unposted = rewards.unposted_epochs(session, now)
    if unposted > _USUAL_UNPOSTED:
        yield Alarm("rewards_unposted", "warn", f"Rewards of {unposted} epochs are not posted.", "/system")


def _of_governance(session: Session, services: Services) -> Iterator[Alarm]:
    contracts = governance.contracts_of(session, services.part(Deployment), services.network)
    for event in governance.alarms(session, contracts):
        text = f"{event.words} (block {event.block_number}); it was not sent from here."
        yield Alarm("governance_event", "bad", text, "/guardian")


def _of_chain(session: Session, facts: ChainFacts | None) -> Iterator[Alarm]:
    if facts is None:
        return
    lag = facts.head - (indexed_head(session) or 0)
    if lag > MAX_LAG_BLOCKS:
        yield Alarm("indexer_behind", "bad", f"The indexer is {lag} blocks behind the chain.", "/system")
    for signer, wei in facts.gas_wei.items():
        if wei < LOW_GAS_WEI:
            text = f"{signer[:6]}…{signer[-4:]} has {format_zen(wei)} of the native token left for fees."
            yield Alarm("gas_low", "bad", text, "/system")
    if facts.bond_wei < LOW_BOND_WEI:
        text = f"The operator's bond is {format_zen(facts.bond_wei)} ZEN; it covers omitted commitments."
        yield Alarm("bond_low", "warn", text, "/system")


def count_running(jobs: dict[str, int]) -> int:
    """Return the number of jobs in training or verification."""
    return sum(jobs.get(status, 0) for status in (JobStatus.RUNNING, JobStatus.VERIFYING, JobStatus.SETTLING))
