"""Queries over samples, canaries, comparisons and replays.

Functions named ``lock_*`` take the row ``FOR NO KEY UPDATE`` and refresh it. These rows are locked after those of jobs,
units and leases. Lists are ordered by id, oldest first; a unit's samples by segment.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TypeVar

from sqlalchemy import exists, func, or_, select
from sqlalchemy.orm import Session

from market.domain.verification.lifecycle import CanaryStatus, ComparisonStatus, ReplayStatus, SampleStatus
from market.platform.db.locks import locked
from market.verification.samples.models import Canary, ClassDrift, Comparison, LateState, Replay, Sample

Row = TypeVar("Row", Sample, Canary, Replay)


def ids_with(session: Session, kind: type[Sample | Canary | Comparison], status: str) -> list[int]:
    return list(session.scalars(select(kind.id).where(kind.status == status).order_by(kind.id)))


def lock(session: Session, kind: type[Row], row_id: int) -> Row:
    """Lock and return a row; none is ever deleted. Comparisons: see :func:`lock_comparison`."""
    return session.scalars(locked(select(kind).where(kind.id == row_id))).one()


def lock_sample_of(session: Session, unit_id: int, segment: int) -> Sample | None:
    return session.scalar(locked(select(Sample).where(Sample.unit_id == unit_id, Sample.segment == segment)))


def lock_samples_of_unit(session: Session, unit_id: int) -> list[Sample]:
    return list(session.scalars(locked(select(Sample).where(Sample.unit_id == unit_id).order_by(Sample.segment))))


def last_reveal_deadline(session: Session, unit_ids: Collection[int]) -> datetime | None:
    """Return the last deadline of the units' requested states, if any."""
    starts = (Sample.unit_id.in_(unit_ids), Sample.status == SampleStatus.DRAWN)
    computed = Comparison.status == ComparisonStatus.COMPUTED
    ends = (Comparison.unit_id.in_(unit_ids), computed, Comparison.claimed_cid.is_(None))
    found = (
        session.scalar(select(func.max(Sample.reveal_deadline_at)).where(*starts)),
        session.scalar(select(func.max(Comparison.reveal_deadline_at)).where(*ends)),
    )
    return max((deadline for deadline in found if deadline is not None), default=None)


def samples_of_unit(session: Session, unit_id: int) -> list[Sample]:
    return list(session.scalars(select(Sample).where(Sample.unit_id == unit_id).order_by(Sample.segment)))


def samples_of_units(session: Session, unit_ids: Collection[int]) -> dict[int, list[Sample]]:
    found: dict[int, list[Sample]] = {}
    query = select(Sample).where(Sample.unit_id.in_(unit_ids)).order_by(Sample.unit_id, Sample.segment)
    for sample in session.scalars(query):
        found.setdefault(sample.unit_id, []).append(sample)
    return found


def is_revealed(session: Session, cid: str, samples: Collection[int] = (), comparisons: Collection[int] = ()) -> bool:
    """Return True if a sampled segment starts from this file, or a comparison names it.

    The given ``samples`` and ``comparisons`` do not count.
    """
    of_sample = exists().where(Sample.state_cid == cid, Sample.id.not_in(samples))
    is_named = or_(Comparison.computed_cid == cid, Comparison.claimed_cid == cid)
    of_comparison = exists().where(is_named, Comparison.id.not_in(comparisons))
    return bool(session.scalar(select(or_(of_sample, of_comparison))))


def depends_on_storage(session: Session) -> bool:
    """Return True if a state or a replay is requested, or a fault is not recorded."""
    is_drawn = exists().where(Sample.status == SampleStatus.DRAWN)
    is_replayed = exists().where(Replay.status.in_((ReplayStatus.ASSIGNED, ReplayStatus.COMMITTED)))
    return bool(session.scalar(select(or_(is_drawn, is_replayed, exists().where(Replay.fault_until.is_not(None))))))


def samples_due_for_a_canary(session: Session) -> list[int]:
    """Return the ids of samples that are due for a canary and have a start state, oldest first."""
    due = (Sample.canary_due, Sample.status != SampleStatus.DRAWN)
    return list(session.scalars(select(Sample.id).where(*due).order_by(Sample.id)))


def late_state(session: Session, sample_id: int) -> LateState | None:
    """Return the late state of a sample. Writers have locked the sample, or advance alone."""
    return session.get(LateState, sample_id, populate_existing=True)


def lock_canaries(session: Session, status: CanaryStatus) -> list[Canary]:
    return list(session.scalars(locked(select(Canary).where(Canary.status == status).order_by(Canary.id))))


def units_with_a_canary(session: Session, unit_ids: Collection[int]) -> set[int]:
    planted = select(Canary.unit_id).where(Canary.unit_id.in_(unit_ids), Canary.status == CanaryStatus.PLANTED)
    return set(session.scalars(planted))


def lock_comparison(session: Session, comparison_id: int) -> Comparison:
    """Lock and return a comparison. Its sample is locked first, the order of all callers."""
    lock(session, Sample, session.get_one(Comparison, comparison_id).sample_id)
    return session.scalars(locked(select(Comparison).where(Comparison.id == comparison_id))).one()


def lock_comparison_of(session: Session, sample_id: int) -> Comparison | None:
    return session.scalar(locked(select(Comparison).where(Comparison.sample_id == sample_id)))


def comparisons_to_make(session: Session) -> list[int]:
    both = (Comparison.status == ComparisonStatus.COMPUTED, Comparison.claimed_cid.is_not(None))
    return list(session.scalars(select(Comparison.id).where(*both).order_by(Comparison.id)))


def drifts(session: Session, job_id: str, provider_class: str, verifier_class: str) -> Sequence[float]:
    """Return the measured drifts of honest segments of a job between two classes."""
    pair = (ClassDrift.provider_class == provider_class, ClassDrift.verifier_class == verifier_class)
    return session.scalars(select(ClassDrift.whole).where(ClassDrift.job_id == job_id, *pair)).all()


def lock_replays(session: Session, subject: Sample | Canary | Comparison) -> list[Replay]:
    column = {Sample: Replay.sample_id, Canary: Replay.canary_id, Comparison: Replay.comparison_id}[type(subject)]
    return list(session.scalars(locked(select(Replay).where(column == subject.id).order_by(Replay.id))))


def results_on_unit(session: Session, unit_id: int) -> list[tuple[int, Replay]]:
    """Return (segment, replay) of the unit's opened results, without those of canaries."""
    opened = Replay.salt.is_not(None), Replay.end_leaf.is_not(None)
    sample = select(Sample.segment, Replay).join(Replay, Replay.sample_id == Sample.id).where(Sample.unit_id == unit_id)
    passed = Comparison.unit_id == unit_id, Comparison.status == ComparisonStatus.PASSED
    across = select(Comparison.segment, Replay).join(Replay, Replay.comparison_id == Comparison.id).where(*passed)
    rows = [*session.execute(sample.where(*opened)).tuples(), *session.execute(across.where(*opened)).tuples()]
    return sorted(rows, key=lambda row: (row[0], row[1].id))


def replays_of_canary_on(session: Session, unit_id: int, segment: int) -> Sequence[Replay]:
    """Return the replays of the canary on a segment, oldest first."""
    query = select(Replay).join(Canary, Replay.canary_id == Canary.id)
    return session.scalars(query.where(Canary.unit_id == unit_id, Canary.segment == segment).order_by(Replay.id)).all()


def verifiers_of_neighbours(session: Session, unit_id: int, segment: int) -> set[str]:
    """Return the verifiers with a replay of the segment before or after this one, in any class."""
    neighbours = (segment - 1, segment + 1)
    of_samples = select(Replay.verifier).join(Sample, Replay.sample_id == Sample.id)
    of_comparisons = select(Replay.verifier).join(Comparison, Replay.comparison_id == Comparison.id)
    return {
        *session.scalars(of_samples.where(Sample.unit_id == unit_id, Sample.segment.in_(neighbours))),
        *session.scalars(of_comparisons.where(Comparison.unit_id == unit_id, Comparison.segment.in_(neighbours))),
    }


def lock_subject(session: Session, replay_id: int) -> tuple[Sample | Canary | Comparison, Replay]:
    """Lock and return what a replay is of, then the replay."""
    replay = session.get_one(Replay, replay_id)
    subject: Sample | Canary | Comparison
    if replay.canary_id is not None:
        subject = lock(session, Canary, replay.canary_id)
    elif replay.comparison_id is not None:
        subject = lock_comparison(session, replay.comparison_id)
    else:
        subject = lock(session, Sample, replay.sample_id or 0)
    return subject, lock(session, Replay, replay_id)


def unrecorded_faults(session: Session) -> list[int]:
    return list(session.scalars(select(Replay.id).where(Replay.fault_until.is_not(None)).order_by(Replay.id)))
