"""Providers and verifiers: list, record, score, hardware proofs, penalties, earnings."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Date, Select, cast, func, or_, select
from sqlalchemy.orm import Session

from market.chain.contracts.codec import ChainEvent
from market.chain.service import final_events_of_kind
from market.console.tables import PAGE_ROWS
from market.domain.nodes.reliability import Evidence, ScoreParts, score_parts
from market.domain.nodes.uptime import epoch_of, uptime_bps
from market.domain.verification.dispute_routes import DecidedBy
from market.domain.verification.sampling import OFFENCE_IDS
from market.payments.rewards.models import RewardEarning, RewardPost
from market.payments.settlement.models import SettlementBatch, SettlementClaim
from market.platform.db.base import from_unix, utc_now
from market.platform.db.rows import from_row
from market.providers.models import (
    AskRow,
    Attestation,
    BenchmarkRun,
    DowntimePenalty,
    Provider,
    ProviderEpoch,
    Stake,
)
from market.providers.record import repository as record_repository
from market.verification.disputes.models import Dispute
from market.verification.penalties.models import LatePenalty, Slash

CALENDAR_EPOCHS = 180
EARNING_DAYS = 30
_DOWNTIME = "downtime"

STAKE_WEI = func.coalesce(Stake.stake_wei, 0)


@dataclass(frozen=True, slots=True)
class Day:
    """One epoch in the calendar; ``uptime_bps`` is None if no minute counted."""

    epoch: int
    uptime_bps: int | None
    verified: int
    rejected: int
    lost: int
    slashes: int


@dataclass(frozen=True, slots=True)
class Penalty:
    """One penalty with its evidence. Amount and transaction are None until they are final.

    Attributes:
        evidence: on chain: id of the dispute, or digest of the document.
        evidence_cid: None if another challenger has the document.
    """

    at: datetime
    offence: str
    path: str
    evidence: str
    evidence_cid: str | None
    amount_wei: int | None
    tx: str | None

    @property
    def dispute_id(self) -> str | None:
        return self.evidence if self.path == DecidedBy.DISPUTE else None


@dataclass(frozen=True, slots=True)
class Earnings:
    """Wei of a node: from units by state of the claim, and from rewards."""

    claimed_wei: int
    claimable_wei: int
    pending_wei: int
    rewards_wei: int
    by_day: Sequence[tuple[date, int]]


@dataclass(frozen=True, slots=True)
class Record:
    """One node with all that decides its work, pay and standing."""

    provider: Provider
    stake: Stake | None
    ask: AskRow | None
    attestation: Attestation | None
    runs: Sequence[BenchmarkRun]
    calendar: Sequence[Day]
    score: ScoreParts
    penalties: Sequence[Penalty]
    earnings: Earnings


def node_lines() -> Select[*tuple[Any, ...]]:
    """Return the query of all nodes as lines of a list."""
    return select(
        *(Provider.address, Provider.name, Provider.kind, Provider.status, Provider.reason, Provider.tier_id),
        *(Provider.region, Provider.reliability_bps, Provider.last_seen_at, STAKE_WEI.label("stake_wei")),
    ).outerjoin(Stake, Stake.address == Provider.address)


def kinds_of_nodes(session: Session, addresses: Sequence[str]) -> dict[str, str]:
    """Return the kinds of those addresses that are registered nodes."""
    kinds = select(Provider.address, Provider.kind).where(Provider.address.in_(addresses))
    return dict(session.execute(kinds).tuples().all())


def matches(words: str) -> ColumnElement[bool]:
    """Return the condition for a part of a name, or a prefix of an address or region."""
    return or_(
        Provider.name.icontains(words, autoescape=True),
        Provider.address.istartswith(words, autoescape=True),
        Provider.region.istartswith(words, autoescape=True),
    )


def read_record(session: Session, address: str) -> Record | None:
    """Return one node's record; None if the address is not registered."""
    provider = session.get(Provider, address)
    if provider is None:
        return None
    runs = select(BenchmarkRun).where(BenchmarkRun.provider == address).order_by(BenchmarkRun.created_at.desc())
    asks = select(AskRow).where(AskRow.provider == address, AskRow.status == "open")
    epochs = record_repository.epochs_of(session, address, CALENDAR_EPOCHS)
    return Record(
        provider=provider,
        stake=session.get(Stake, address),
        ask=session.scalar(asks),
        attestation=session.get(Attestation, address),
        runs=session.scalars(runs.limit(10)).all(),
        calendar=[_day(row) for row in reversed(epochs)],
        score=_score(epochs),
        penalties=penalties_of(session, address),
        earnings=earnings_of(session, address),
    )


def penalties_of(session: Session, address: str) -> list[Penalty]:
    """Return a node's newest penalties of all kinds, newest first.

    The market has no record of slashes that other challengers obtained; those are read from final events.
    """
    newest: list[tuple[Slash | LatePenalty | DowntimePenalty, str]] = []
    for slash in _newest(session, Slash, address):
        newest.append((slash, slash.offence))
    for late in _newest(session, LatePenalty, address):
        newest.append((late, LatePenalty.offence))
    for downtime in _newest(session, DowntimePenalty, address):
        newest.append((downtime, _DOWNTIME))
    penalties = [
        from_row(Penalty, row, at=row.created_at, offence=offence, path=getattr(row, "path", DecidedBy.OPERATOR))
        for row, offence in newest
    ]
    recorded = {penalty.evidence for penalty in penalties}
    of_node = [f"0x{int(address, 16):064x}"]
    for event in final_events_of_kind(session, "ProviderStaking", "Slashed", of_node):
        if event.args["evidence"] not in recorded:
            penalties.append(_foreign(session, event))
    return sorted(penalties, key=lambda penalty: penalty.at, reverse=True)[:PAGE_ROWS]


def _foreign(session: Session, event: ChainEvent) -> Penalty:
    is_dispute = session.get(Dispute, event.args["evidence"]) is not None
    return Penalty(
        at=from_unix(event.timestamp),
        offence=next(name for name, number in OFFENCE_IDS.items() if number == event.args["offence"]),
        path=DecidedBy.DISPUTE if is_dispute else DecidedBy.OPERATOR,
        evidence=event.args["evidence"],
        evidence_cid=None,
        amount_wei=event.args["amount"],
        tx=event.tx_hash,
    )


_Kind = TypeVar("_Kind", Slash, LatePenalty, DowntimePenalty)


def _newest(session: Session, kind: type[_Kind], address: str) -> Sequence[_Kind]:
    query = select(kind).where(kind.provider == address).order_by(kind.created_at.desc())
    return session.scalars(query.limit(PAGE_ROWS)).all()


def earnings_of(session: Session, address: str) -> Earnings:
    """Return a node's pay by state of the claim, its rewards, and its pay by day."""
    now = utc_now()
    amount, claim, batch = SettlementClaim.amount_wei, SettlementClaim, SettlementBatch
    is_open = claim.claim_tx.is_(None)
    is_due = batch.claimable_at <= now
    mine = (claim.provider == address, batch.void_reason.is_(None))
    totals = select(
        func.coalesce(func.sum(amount).filter(~is_open), 0),
        func.coalesce(func.sum(amount).filter(is_open, is_due), 0),
        func.coalesce(func.sum(amount).filter(is_open, func.coalesce(~is_due, True)), 0),
    ).join(batch, batch.id == claim.settlement_id)
    claimed, claimable, pending = session.execute(totals.where(*mine)).one()._tuple()
    day = cast(batch.created_at, Date)
    by_day = (
        select(day, func.sum(amount))
        .join(claim, claim.settlement_id == batch.id)
        .where(*mine, batch.created_at >= now - timedelta(days=EARNING_DAYS))
        .group_by(day)
        .order_by(day)
    )
    rewards = select(func.sum(RewardEarning.base_wei + RewardEarning.bandwidth_wei + RewardEarning.verifier_wei))
    valid = rewards.join(RewardPost, RewardPost.id == RewardEarning.post_id).where(RewardPost.void_reason.is_(None))
    return Earnings(
        claimed_wei=int(claimed),
        claimable_wei=int(claimable),
        pending_wei=int(pending),
        rewards_wei=int(session.scalar(valid.where(RewardEarning.account == address)) or 0),
        by_day=[(at, int(total)) for at, total in session.execute(by_day).tuples()],
    )


def _day(row: ProviderEpoch) -> Day:
    counted = row.counted_minutes
    return from_row(Day, row, uptime_bps=uptime_bps(row.up_minutes, counted) if counted else None)


def _score(epochs: Sequence[ProviderEpoch]) -> ScoreParts:
    now = epoch_of(utc_now().timestamp())
    return score_parts({max(0, now - row.epoch): from_row(Evidence, row) for row in epochs})
