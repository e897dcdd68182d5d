"""Every query on windows, omission claims, samples, canaries, replays and slashes.

Functions named ``lock_*`` take the row ``FOR NO KEY UPDATE`` and read it afresh. Rows here are locked after those of
jobs, units and leases.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import exists, func, or_, select, update
from sqlalchemy.orm import Session

from market.db.locks import locked
from market.domain.lateness import Booked
from market.domain.verification import Overruled
from market.domain.verification_lifecycle import (
    CanaryStatus,
    ComparisonStatus,
    OmissionStatus,
    ReplayStatus,
    SampleStatus,
    WindowStatus,
)
from market.verification.models import (
    Canary,
    ClassDrift,
    Comparison,
    LatePenalty,
    LateState,
    OmissionClaim,
    Replay,
    Sample,
    Slash,
    Window,
)

PAGE = 200
"""Rows with states to release that are read at once."""


# --- windows


def newest_window(session: Session) -> Window | None:
    return session.scalar(select(Window).order_by(Window.id.desc()).limit(1))


def window(session: Session, window_id: int) -> Window | None:
    return session.get(Window, window_id)


def windows(session: Session, *statuses: WindowStatus) -> list[Window]:
    """Windows in these states, oldest first."""
    return list(session.scalars(select(Window).where(Window.status.in_(statuses)).order_by(Window.id)))


def lock_window_by_root(session: Session, root: str) -> Window | None:
    return session.scalar(locked(select(Window).where(Window.root == root)))


def lock_window_by_contract_id(session: Session, contract_id: int) -> Window | None:
    return session.scalar(locked(select(Window).where(Window.chain_id_in_contract == contract_id)))


def lock_window(session: Session, window_id: int) -> Window | None:
    return session.scalar(locked(select(Window).where(Window.id == window_id)))


# --- omission claims


def lock_omission(session: Session, leaf: str) -> OmissionClaim | None:
    return session.scalar(locked(select(OmissionClaim).where(OmissionClaim.leaf == leaf)))


def open_omissions(session: Session, now: datetime) -> Sequence[OmissionClaim]:
    """Claims that can still be answered, the most urgent first."""
    query = select(OmissionClaim).where(OmissionClaim.status == OmissionStatus.OPEN, OmissionClaim.deadline > now)
    return session.scalars(query.order_by(OmissionClaim.deadline, OmissionClaim.leaf)).all()


def omissions_of(session: Session, provider: str, limit: int) -> Sequence[OmissionClaim]:
    """A provider's claims, the newest first."""
    query = select(OmissionClaim).where(OmissionClaim.provider == provider)
    return session.scalars(query.order_by(OmissionClaim.created_at.desc()).limit(limit)).all()


def count_open_omissions(session: Session) -> int:
    query = select(func.count()).where(OmissionClaim.status == OmissionStatus.OPEN)
    return session.scalar(query) or 0


# --- samples


def samples_with(session: Session, status: SampleStatus) -> list[int]:
    """Ids of the samples in a state, oldest first."""
    return list(session.scalars(select(Sample.id).where(Sample.status == status).order_by(Sample.id)))


def lock_sample(session: Session, sample_id: int) -> Sample | None:
    return session.scalar(locked(select(Sample).where(Sample.id == sample_id)))


def lock_sample_of(session: Session, unit_id: int, segment: int) -> Sample | None:
    return session.scalar(locked(select(Sample).where(Sample.unit_id == unit_id, Sample.segment == segment)))


def lock_samples_of_unit(session: Session, unit_id: int) -> list[Sample]:
    """The unit's samples by segment."""
    return list(session.scalars(locked(select(Sample).where(Sample.unit_id == unit_id).order_by(Sample.segment))))


def last_reveal_deadline(session: Session, unit_ids: Collection[int]) -> datetime | None:
    """Until when the last of the units' states that were asked for and not shown yet is to be shown: starts of drawn
    segments, and ends to compare. None if there is none."""
    starts = (Sample.unit_id.in_(unit_ids), Sample.status == SampleStatus.DRAWN)
    computed = Comparison.status == ComparisonStatus.COMPUTED
    ends = (Comparison.unit_id.in_(unit_ids), computed, Comparison.claimed_cid.is_(None))
    found = (
        session.scalar(select(func.max(Sample.reveal_deadline_at)).where(*starts)),
        session.scalar(select(func.max(Comparison.reveal_deadline_at)).where(*ends)),
    )
    return max((deadline for deadline in found if deadline is not None), default=None)


def samples_of_unit(session: Session, unit_id: int) -> list[Sample]:
    """The unit's samples by segment."""
    return list(session.scalars(select(Sample).where(Sample.unit_id == unit_id).order_by(Sample.segment)))


def samples_of_units(session: Session, unit_ids: Collection[int]) -> dict[int, list[Sample]]:
    """Samples by unit id, each unit's by segment."""
    found: dict[int, list[Sample]] = {}
    query = select(Sample).where(Sample.unit_id.in_(unit_ids)).order_by(Sample.unit_id, Sample.segment)
    for sample in session.scalars(query):
        found.setdefault(sample.unit_id, []).append(sample)
    return found


def samples_with_states(session: Session, before: datetime, after: int) -> Sequence[Sample]:
    """Samples drawn before then whose start states storage keeps, but for those of a unit that somebody was slashed
    for, whose evidence names them. A page of them, the oldest first, after that id."""
    is_evidence = exists().where(Slash.unit_id == Sample.unit_id)
    query = select(Sample).where(Sample.state_cid.is_not(None), Sample.created_at < before, ~is_evidence)
    return session.scalars(query.where(Sample.id > after).order_by(Sample.id).limit(PAGE)).all()


def drop_states(session: Session, sample_ids: Collection[int]) -> None:
    """Storage does not keep the start states of these samples any longer."""
    session.execute(update(Sample).where(Sample.id.in_(sample_ids)).values(state_cid=None))


def is_revealed(session: Session, cid: str, samples: Collection[int] = (), comparisons: Collection[int] = ()) -> bool:
    """Whether a drawn segment starts from the state in this file, or a comparison has it; but for these ``samples`` and
    ``comparisons``."""
    of_sample = exists().where(Sample.state_cid == cid, Sample.id.not_in(samples))
    is_named = or_(Comparison.computed_cid == cid, Comparison.claimed_cid == cid)
    of_comparison = exists().where(is_named, Comparison.id.not_in(comparisons))
    return bool(session.scalar(select(or_(of_sample, of_comparison))))


def depends_on_storage(session: Session) -> bool:
    """Whether a provider is asked for a state now, or a verifier for a replay, or one gave no result just now."""
    is_drawn = exists().where(Sample.status == SampleStatus.DRAWN)
    is_replayed = exists().where(Replay.status.in_((ReplayStatus.ASSIGNED, ReplayStatus.COMMITTED)))
    return bool(session.scalar(select(or_(is_drawn, is_replayed, exists().where(Replay.fault_until.is_not(None))))))


def samples_due_for_a_canary(session: Session) -> list[int]:
    """Ids of the samples that one is to be planted on and whose start state is at hand, oldest first."""
    due = (Sample.canary_due, Sample.status != SampleStatus.DRAWN)
    return list(session.scalars(select(Sample.id).where(*due).order_by(Sample.id)))


# --- late states


def late_state(session: Session, sample_id: int) -> LateState | None:
    """The row of a sample whose start state is late; whoever writes it has locked the sample, or advances alone."""
    return session.get(LateState, sample_id, populate_existing=True)


def unbooked_late_states(session: Session) -> list[LateState]:
    """Those whose units were not decided when last looked at, by sample."""
    query = select(LateState).where(LateState.booked.is_(None)).order_by(LateState.sample_id)
    return list(session.scalars(query))


def counted_late_states(session: Session, due_after: datetime, provider: str | None = None) -> Sequence[LateState]:
    """Those that count and were due after then, of one provider or of all, by when they were due."""
    query = select(LateState).where(LateState.booked == Booked.COUNTED, LateState.due_at > due_after)
    if provider is not None:
        query = query.where(LateState.provider == provider)
    return session.scalars(query.order_by(LateState.due_at, LateState.sample_id)).all()


def last_late_penalty_at(session: Session, provider: str) -> datetime | None:
    """When a provider was last slashed for being late, if ever."""
    return session.scalar(select(func.max(LatePenalty.created_at)).where(LatePenalty.provider == provider))


# --- canaries


def planted_canaries(session: Session) -> list[int]:
    """Ids of those that are not answered, oldest first."""
    query = select(Canary.id).where(Canary.status == CanaryStatus.PLANTED)
    return list(session.scalars(query.order_by(Canary.id)))


def lock_canaries(session: Session, status: CanaryStatus) -> list[Canary]:
    """Those in a state, oldest first."""
    return list(session.scalars(locked(select(Canary).where(Canary.status == status).order_by(Canary.id))))


def canaries_with_states(session: Session, before: datetime, after: int) -> Sequence[Canary]:
    """Canaries made before then whose altered states storage may keep though nobody replays them, but for those for
    which a verifier was slashed, or is to be: the evidence names the state. A page of them, as above."""
    is_punished = (Replay.status == ReplayStatus.OVERRULED) & (Replay.reason == Overruled.SLASHED)
    is_evidence = exists().where(Replay.canary_id == Canary.id, is_punished)
    is_over = Canary.status.in_((CanaryStatus.ANSWERED, CanaryStatus.DROPPED))
    query = select(Canary).where(Canary.state_cid.is_not(None), is_over, Canary.created_at < before, ~is_evidence)
    return session.scalars(query.where(Canary.id > after).order_by(Canary.id).limit(PAGE)).all()


def drop_canary_states(session: Session, canary_ids: Collection[int]) -> None:
    """Storage does not keep the altered states of these canaries any longer."""
    session.execute(update(Canary).where(Canary.id.in_(canary_ids)).values(state_cid=None))


def lock_canary(session: Session, canary_id: int) -> Canary | None:
    return session.scalar(locked(select(Canary).where(Canary.id == canary_id)))


def units_with_a_canary(session: Session, unit_ids: Collection[int]) -> set[int]:
    """Those of the units on which one is planted that is not answered."""
    planted = select(Canary.unit_id).where(Canary.unit_id.in_(unit_ids), Canary.status == CanaryStatus.PLANTED)
    return set(session.scalars(planted))


# --- comparisons


def lock_comparison(session: Session, comparison_id: int) -> Comparison | None:
    """Its sample is locked first, as by who judges that and then sees to its comparison."""
    sample_id = session.scalar(select(Comparison.sample_id).where(Comparison.id == comparison_id))
    if sample_id is None:
        return None
    lock_sample(session, sample_id)
    return session.scalar(locked(select(Comparison).where(Comparison.id == comparison_id)))


def lock_comparison_of(session: Session, sample_id: int) -> Comparison | None:
    return session.scalar(locked(select(Comparison).where(Comparison.sample_id == sample_id)))


def comparisons_with(session: Session, status: ComparisonStatus) -> list[int]:
    """Ids of the comparisons in a state, oldest first."""
    return list(session.scalars(select(Comparison.id).where(Comparison.status == status).order_by(Comparison.id)))


def comparisons_to_make(session: Session) -> list[int]:
    """Ids of those of which both states are there, oldest first."""
    both = (Comparison.status == ComparisonStatus.COMPUTED, Comparison.claimed_cid.is_not(None))
    return list(session.scalars(select(Comparison.id).where(*both).order_by(Comparison.id)))


def comparisons_with_states(session: Session, before: datetime, after: int) -> Sequence[Comparison]:
    """Decided comparisons begun before then of which storage keeps a state. A page of them, as above."""
    is_over = Comparison.status.in_((ComparisonStatus.PASSED, ComparisonStatus.FAILED))
    is_stored = or_(Comparison.computed_cid.is_not(None), Comparison.claimed_cid.is_not(None))
    query = select(Comparison).where(is_over, is_stored, Comparison.created_at < before)
    return session.scalars(query.where(Comparison.id > after).order_by(Comparison.id).limit(PAGE)).all()


def drop_comparison_states(session: Session, comparison_ids: Collection[int]) -> None:
    """Storage does not keep the states of these comparisons any longer."""
    none = {"computed_cid": None, "claimed_cid": None}
    session.execute(update(Comparison).where(Comparison.id.in_(comparison_ids)).values(none))


def drifts(session: Session, job_id: str, provider_class: str, verifier_class: str) -> Sequence[float]:
    """Drifts of honest segments of a job between two classes, as measured so far."""
    pair = (ClassDrift.provider_class == provider_class, ClassDrift.verifier_class == verifier_class)
    return session.scalars(select(ClassDrift.whole).where(ClassDrift.job_id == job_id, *pair)).all()


# --- replays


def lock_replay(session: Session, replay_id: int) -> Replay | None:
    return session.scalar(locked(select(Replay).where(Replay.id == replay_id)))


def lock_replays(session: Session, sample_id: int) -> list[Replay]:
    """A sample's replays, oldest first."""
    return list(session.scalars(locked(select(Replay).where(Replay.sample_id == sample_id).order_by(Replay.id))))


def lock_canary_replays(session: Session, canary_id: int) -> list[Replay]:
    """A canary's replays, oldest first."""
    return list(session.scalars(locked(select(Replay).where(Replay.canary_id == canary_id).order_by(Replay.id))))


def lock_comparison_replays(session: Session, comparison_id: int) -> list[Replay]:
    """A comparison's replays, oldest first."""
    mine = Replay.comparison_id == comparison_id
    return list(session.scalars(locked(select(Replay).where(mine).order_by(Replay.id))))


def replays_of_canary_on(session: Session, unit_id: int, segment: int) -> Sequence[Replay]:
    """The replays of the canary that was planted on a sample, oldest first."""
    query = select(Replay).join(Canary, Replay.canary_id == Canary.id)
    return session.scalars(query.where(Canary.unit_id == unit_id, Canary.segment == segment).order_by(Replay.id)).all()


def verifiers_of_neighbours(session: Session, unit_id: int, segment: int) -> set[str]:
    """Who was asked for the segments before and after this one, in the unit's class or in another."""
    beside = (segment - 1, segment + 1)
    of_samples = select(Replay.verifier).join(Sample, Replay.sample_id == Sample.id)
    of_comparisons = select(Replay.verifier).join(Comparison, Replay.comparison_id == Comparison.id)
    return {
        *session.scalars(of_samples.where(Sample.unit_id == unit_id, Sample.segment.in_(beside))),
        *session.scalars(of_comparisons.where(Comparison.unit_id == unit_id, Comparison.segment.in_(beside))),
    }


def lock_posed(session: Session, replay_id: int) -> Sample | Canary | Comparison:
    """What a replay that there is was asked for: a sample, a canary or a comparison, locked."""
    replay = session.get_one(Replay, replay_id)
    posed: Sample | Canary | Comparison | None
    if replay.canary_id is not None:
        posed = lock_canary(session, replay.canary_id)
    elif replay.comparison_id is not None:
        posed = lock_comparison(session, replay.comparison_id)
    else:
        posed = lock_sample(session, replay.sample_id or 0)
    assert posed is not None  # neither is deleted
    return posed


def replays_to_punish(session: Session) -> Sequence[int]:
    """Ids of the replays for which their verifiers are to be slashed, oldest first."""
    wrong = (Replay.status == ReplayStatus.OVERRULED, Replay.reason == Overruled.SLASHED)
    is_punished = exists().where(Slash.replay_id == Replay.id)
    return session.scalars(select(Replay.id).where(*wrong, ~is_punished).order_by(Replay.id)).all()


def faults_to_book(session: Session) -> list[int]:
    """Ids of the replays without a result whose verifiers' faults are not in their scores yet, oldest first."""
    return list(session.scalars(select(Replay.id).where(Replay.fault_until.is_not(None)).order_by(Replay.id)))


# --- slashes


def lock_penalty(session: Session, evidence: str) -> Slash | LatePenalty | None:
    late = session.scalar(locked(select(LatePenalty).where(LatePenalty.evidence == evidence)))
    return late or session.scalar(locked(select(Slash).where(Slash.evidence == evidence)))


def slashes_of_job(session: Session, job_id: str) -> Sequence[Slash]:
    """Of providers, not of verifiers, for the work that the job paid or did not pay; by id."""
    mine = (Slash.job_id == job_id, Slash.replay_id.is_(None))
    return session.scalars(select(Slash).where(*mine).order_by(Slash.id)).all()


def last_slashed_at(session: Session, wallet: str) -> datetime | None:
    """When the newest penalty of a wallet was brought, for whatever it did; None: never."""
    return session.scalar(select(func.max(Slash.created_at)).where(Slash.provider == wallet))


def is_slashed_for(session: Session, unit_id: int, wallet: str) -> bool:
    """Whether a wallet has a penalty for this unit already: there is one at most."""
    return bool(session.scalar(select(exists().where(Slash.unit_id == unit_id, Slash.provider == wallet))))


def unexecuted_penalties(session: Session) -> list[Slash | LatePenalty]:
    """Those that the chain has not executed, each kind oldest first."""
    slashes = session.scalars(select(Slash).where(Slash.tx.is_(None)).order_by(Slash.id))
    late = session.scalars(select(LatePenalty).where(LatePenalty.tx.is_(None)).order_by(LatePenalty.id))
    return [*slashes, *late]
