"""Disputes with the due parties, the story of one, sampling, and the quality of verifiers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.orm import Session

from market.chain.contracts.codec import ChainEvent
from market.chain.repository import final_events_about
from market.console.reads.providers import STAKE_WEI
from market.domain.lifecycle import DISPUTE_OPEN, DISPUTE_STATUSES, UNIT_DECIDED, DisputeStatus
from market.jobs.models import Job
from market.platform.db.base import from_unix
from market.platform.db.rows import from_row
from market.providers.models import Provider, ProviderEpoch, Stake
from market.training.commitments.repository import acknowledged_unit
from market.training.units.models import Unit
from market.verification.disputes.models import Challenge, Dispute, Verdict
from market.verification.samples.models import Replay, Sample
from market.verification.windows.models import Window
from zoo_protocol.verification import dispute_story

SAMPLED_UNITS = 2_000
"""Newest units in windows that the sampling summary covers."""
OPEN = "open"


@dataclass(frozen=True, slots=True)
class Due:
    """The parties with the next act and their deadline, by final blocks; None before the draw."""

    parties: Sequence[str]
    act: str
    until: datetime | None


@dataclass(frozen=True, slots=True)
class StoryStep:
    """One transaction of a story."""

    at: datetime
    words: str
    tx: str


@dataclass(frozen=True, slots=True)
class DisputedUnit:
    """The unit in question. Steps count from 1."""

    job_id: str
    round: int
    slot: int
    segment: int | None
    first_step: int | None
    last_step: int | None
    steps: int
    status: str


@dataclass(frozen=True, slots=True)
class Seat:
    """A referee of the current committee with its verdict in words."""

    referee: str
    words: str
    provider_correct: bool | None


@dataclass(frozen=True, slots=True)
class Division:
    """Wei of the slashed stake, and where it went."""

    slashed_wei: int
    challenger_wei: int
    referees_wei: int
    burned_wei: int


@dataclass(frozen=True, slots=True)
class Story:
    """A dispute as the demonstration tells it. Lists are empty before their step."""

    dispute: Dispute
    unit: DisputedUnit | None
    challenge: Challenge | None
    due: Due | None
    refuted_by: Sequence[str]
    claimed: str | None
    computed: Sequence[str]
    steps: Sequence[StoryStep]
    committee: Sequence[Seat]
    division: Division | None


@dataclass(frozen=True, slots=True)
class SamplingRate:
    """Units of one sampling rate among the newest ones, by outcome."""

    sampling_bps: int
    segments: int
    units: int
    verified: int
    rejected: int
    disputed: int


def dispute_lines() -> Select[*tuple[Any, ...]]:
    """Return the query of all disputes as lines of a list."""
    return select(
        *(Dispute.id, Dispute.provider, Dispute.challenger, Dispute.status, Dispute.step, Dispute.draw),
        *(Dispute.committee, Dispute.created_at),
    )


def has_status(status: str) -> ColumnElement[bool]:
    """Return the condition for a status, or for ``open``: any status before the end."""
    return Dispute.status.in_(DISPUTE_OPEN) if status == OPEN else Dispute.status == status


def due_of(session: Session, lines: Sequence[Any]) -> Mapping[str, Due]:
    """Return what is due in the open ones of these disputes, by id."""
    open_ids = [line.id for line in lines if line.status in DISPUTE_OPEN]
    if not open_ids:
        return {}
    turns, signed = _turns(final_events_about(session, open_ids)), _signed(session, open_ids)
    found = {line.id: _due(line, turns.get(line.id), signed.get(line.id, frozenset())) for line in lines}
    return {dispute_id: due for dispute_id, due in found.items() if due is not None}


def _turns(events: Sequence[ChainEvent]) -> Mapping[str, datetime]:
    """Return the newest response deadline of each dispute."""
    return {
        event.args["disputeId"]: from_unix(event.args["deadline"]) for event in events if event.name == "TurnStarted"
    }


def _signed(session: Session, dispute_ids: Sequence[str]) -> Mapping[str, frozenset[str]]:
    """Return the referees of the current committees with a verdict."""
    query = (
        select(Verdict.dispute_id, func.array_agg(Verdict.referee))
        .join(Dispute, (Dispute.id == Verdict.dispute_id) & (Dispute.draw == Verdict.draw))
        .where(Verdict.dispute_id.in_(dispute_ids))
        .group_by(Verdict.dispute_id)
    )
    return {dispute_id: frozenset(referees) for dispute_id, referees in session.execute(query).tuples()}


def _due(dispute: Dispute, until: datetime | None, signed: frozenset[str]) -> Due | None:
    """Return the parties with the next act. ``dispute`` is its row, or the columns of a list."""
    if dispute.status == DisputeStatus.TRACE:
        return Due([dispute.provider], "reveal the trace", until)
    if dispute.status == DisputeStatus.STEP:
        return Due([dispute.challenger], "select a segment", until)
    if dispute.status == DisputeStatus.DRAWING:
        return Due([], "draw a committee by the seed block", None)
    if dispute.status == DisputeStatus.JUDGING:
        return Due([referee for referee in dispute.committee or [] if referee not in signed], "sign a verdict", until)
    return None


def read_story(session: Session, dispute_id: str, bond_wei: int) -> Story | None:
    """Return the story of a dispute; None if no final block contains it.

    Args:
        bond_wei: the bond, which a winning challenger gets back with its share.
    """
    dispute = session.get(Dispute, dispute_id)
    if dispute is None:
        return None
    events = final_events_about(session, [dispute_id])
    found = acknowledged_unit(session, dispute.unit_key)
    challenge = session.scalar(select(Challenge).where(Challenge.dispute_id == dispute_id))
    segment = challenge.step if dispute.step is None and challenge is not None else dispute.step
    unit = None if found is None else found[2]
    is_public = unit is not None and (challenge is not None or unit.status in UNIT_DECIDED)
    claimed = None
    if unit is not None and is_public and segment is not None and unit.leaves and segment + 1 < len(unit.leaves):
        claimed = unit.leaves[segment + 1]
    replays = [] if unit is None or segment is None else _refuting(session, unit.id, segment, claimed)
    ours = challenge is not None
    return Story(
        dispute=dispute,
        unit=None if found is None or unit is None else _disputed_unit(unit, segment, found[1].spec),
        challenge=challenge,
        due=_due(dispute, _turns(events).get(dispute_id), _signed(session, [dispute_id]).get(dispute_id, frozenset())),
        refuted_by=[replay.verifier for replay in replays],
        claimed=claimed,
        computed=sorted({str(replay.end_leaf) for replay in replays}),
        steps=[*_committed(session, unit), *_steps(events, "the market" if ours else "the challenger")],
        committee=_committee(session, dispute),
        division=_division(events, dispute.challenger, bond_wei),
    )


def _disputed_unit(unit: Unit, segment: int | None, spec: Mapping[str, Mapping[str, int]]) -> DisputedUnit:
    training = spec.get("training_config", {})
    length = training.get("segment_steps")
    is_known = segment is not None and length is not None
    return from_row(
        DisputedUnit,
        unit,
        segment=segment,
        first_step=(segment or 0) * (length or 0) + 1 if is_known else None,
        last_step=((segment or 0) + 1) * (length or 0) if is_known else None,
        steps=training.get("inner_steps", 0),
    )


def _refuting(session: Session, unit_id: int, segment: int, claimed: str | None) -> Sequence[Replay]:
    """Return the opened replays of the segment with another end than the claimed one."""
    query = (
        select(Replay)
        .join(Sample, Sample.id == Replay.sample_id)
        .where(Sample.unit_id == unit_id, Sample.segment == segment, Replay.salt.is_not(None))
        .order_by(Replay.id)
    )
    return session.scalars(query.where(Replay.end_leaf != claimed)).all() if claimed is not None else []


def _committed(session: Session, unit: Unit | None) -> list[StoryStep]:
    window = None if unit is None or unit.window_id is None else session.get(Window, unit.window_id)
    if window is None or window.commit_tx is None or window.committed_at is None:
        return []
    return [StoryStep(window.committed_at, dispute_story.COMMITTED, window.commit_tx)]


def _steps(events: Sequence[ChainEvent], challenger: str) -> list[StoryStep]:
    is_judged = any(event.name == "VerdictGiven" for event in events)
    told = [(event, dispute_story.step(event.name, event.args, challenger)) for event in events]
    if not is_judged:
        ends = [event for event in events if event.name == "DisputeEnded"]
        told += [(event, dispute_story.ending(DISPUTE_STATUSES[event.args["outcome"]])) for event in ends]
    return [StoryStep(from_unix(event.timestamp), words, event.tx_hash) for event, words in told if words is not None]


def _committee(session: Session, dispute: Dispute) -> list[Seat]:
    of_draw = (Verdict.dispute_id == dispute.id, Verdict.draw == dispute.draw)
    given = {verdict.referee: verdict for verdict in session.scalars(select(Verdict).where(*of_draw))}
    seats = []
    for referee in dispute.committee or []:
        verdict = given.get(referee)
        if verdict is None:
            open_words = "has not signed yet" if dispute.status in DISPUTE_OPEN else dispute_story.verdict(None)
            seats.append(Seat(referee, open_words, None))
        else:
            words = dispute_story.verdict(verdict.provider_correct, verdict.reason)
            seats.append(Seat(referee, words, verdict.provider_correct))
    return seats


def _division(events: Sequence[ChainEvent], challenger: str, bond_wei: int) -> Division | None:
    ended = next((event for event in events if event.name == "DisputeEnded"), None)
    slash = next((event for event in events if event.name == "Slashed"), None)
    if ended is None or slash is None:
        return None
    credited: dict[str, int] = {}
    for event in events:
        if event.name == "Credited":
            account = event.args["account"]
            credited[account] = credited.get(account, 0) + event.args["amount"]
    to_challenger = credited.pop(challenger, bond_wei) - bond_wei
    # Staking burns what is not the dispute's share; the dispute burns the rest of its share.
    burned = slash.args["amount"] - slash.args["share"] + ended.args["burned"]
    return Division(slash.args["amount"], to_challenger, sum(credited.values()), burned)


def sampling(session: Session) -> list[SamplingRate]:
    """Return the newest units by sampling rate and number of segments, highest rate first."""
    from_newest = (
        select(Unit.job_id, Unit.status, Unit.sampling_bps)
        .where(Unit.window_id.is_not(None), Unit.sampling_bps.is_not(None))
        .order_by(Unit.window_id.desc())
        .limit(SAMPLED_UNITS)
        .subquery()
    )
    unit = from_newest.c
    query = (
        select(
            unit.sampling_bps,
            Job.segments,
            func.count(),
            *(func.count().filter(unit.status == status) for status in ("verified", "rejected", "disputed")),
        )
        .join(Job, Job.id == unit.job_id)
        .group_by(unit.sampling_bps, Job.segments)
        .order_by(unit.sampling_bps.desc(), Job.segments)
    )
    return [SamplingRate(*row) for row in session.execute(query).tuples()]


def verifier_lines() -> Select[*tuple[Any, ...]]:
    """Return the query of all verifiers as lines of a list."""
    return (
        select(
            *(Provider.address, Provider.name, Provider.status, Provider.reliability_bps, Provider.last_seen_at),
            STAKE_WEI.label("stake_wei"),
        )
        .outerjoin(Stake, Stake.address == Provider.address)
        .where(Provider.kind == "verifier")
    )


@dataclass(frozen=True, slots=True)
class ReplayCounts:
    """Replays of a verifier by outcome."""

    replays: int = 0
    refused: int = 0
    lost: int = 0
    rejected: int = 0


def replay_counts(session: Session, addresses: Sequence[str], since_epoch: int) -> Mapping[str, ReplayCounts]:
    """Return the replays of verifiers from an epoch on; those without any are missing."""
    counts = (getattr(ProviderEpoch, name) for name in ReplayCounts.__dataclass_fields__)
    query = (
        select(ProviderEpoch.provider, *(func.sum(count) for count in counts))
        .where(ProviderEpoch.provider.in_(addresses), ProviderEpoch.epoch >= since_epoch)
        .group_by(ProviderEpoch.provider)
    )
    return {row[0]: ReplayCounts(*map(int, row[1:])) for row in session.execute(query).tuples()}
