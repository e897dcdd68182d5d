"""Queries that join samples with penalties and stored states."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import exists, or_, select, update
from sqlalchemy.orm import Session

from market.domain.verification.late_states import LatenessOutcome
from market.domain.verification.lifecycle import CanaryStatus, ComparisonStatus, ReplayStatus
from market.domain.verification.sampling import VerifierSanction
from market.verification.penalties.models import Slash
from market.verification.samples.models import Canary, Comparison, LateState, Replay, Sample

PAGE = 200
"""Rows per query with states to release."""


def samples_with_states(session: Session, before: datetime, after: int) -> Sequence[Sample]:
    """Return a page of samples from before then with stored start states, after id ``after``.

    Samples of a slashed unit are excluded: its evidence names their states.
    """
    is_evidence = exists().where(Slash.unit_id == Sample.unit_id)
    query = select(Sample).where(Sample.state_cid.is_not(None), Sample.created_at < before, ~is_evidence)
    return session.scalars(query.where(Sample.id > after).order_by(Sample.id).limit(PAGE)).all()


def unrecorded_late_states(session: Session) -> list[LateState]:
    """Return the late states without an outcome, by sample."""
    query = select(LateState).where(LateState.booked.is_(None)).order_by(LateState.sample_id)
    return list(session.scalars(query))


def counted_late_states(session: Session, due_after: datetime, provider: str | None = None) -> Sequence[LateState]:
    """Return the counted late states due after then, of one provider or all, by due time."""
    query = select(LateState).where(LateState.booked == LatenessOutcome.COUNTED, LateState.due_at > due_after)
    if provider is not None:
        query = query.where(LateState.provider == provider)
    return session.scalars(query.order_by(LateState.due_at, LateState.sample_id)).all()


def canaries_with_states(session: Session, before: datetime, after: int) -> Sequence[Canary]:
    """Return a page of finished canaries with stored states, as :func:`samples_with_states`.

    Canaries whose verifier is slashed, or to be slashed, are excluded.
    """
    is_slashed = (Replay.status == ReplayStatus.OVERRULED) & (Replay.reason == VerifierSanction.SLASHED)
    is_evidence = exists().where(Replay.canary_id == Canary.id, is_slashed)
    is_over = Canary.status.in_((CanaryStatus.ANSWERED, CanaryStatus.DROPPED))
    query = select(Canary).where(Canary.state_cid.is_not(None), is_over, Canary.created_at < before, ~is_evidence)
    return session.scalars(query.where(Canary.id > after).order_by(Canary.id).limit(PAGE)).all()


def comparisons_with_states(session: Session, before: datetime, after: int) -> Sequence[Comparison]:
    """Return a page of decided comparisons from before then with a stored state."""
    is_over = Comparison.status.in_((ComparisonStatus.PASSED, ComparisonStatus.FAILED))
    is_stored = or_(Comparison.computed_cid.is_not(None), Comparison.claimed_cid.is_not(None))
    query = select(Comparison).where(is_over, is_stored, Comparison.created_at < before)
    return session.scalars(query.where(Comparison.id > after).order_by(Comparison.id).limit(PAGE)).all()


def drop_states(session: Session, kind: type[Sample | Canary | Comparison], ids: Collection[int]) -> None:
    columns = ("computed_cid", "claimed_cid") if kind is Comparison else ("state_cid",)
    session.execute(update(kind).where(kind.id.in_(ids)).values(dict.fromkeys(columns)))


def replays_to_slash(session: Session) -> Sequence[int]:
    """Return the ids of the replays whose verifiers are to be slashed, oldest first."""
    wrong = (Replay.status == ReplayStatus.OVERRULED, Replay.reason == VerifierSanction.SLASHED)
    is_slashed = exists().where(Slash.replay_id == Replay.id)
    return session.scalars(select(Replay.id).where(*wrong, ~is_slashed).order_by(Replay.id)).all()
