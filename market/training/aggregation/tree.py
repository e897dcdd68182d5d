"""A round's aggregation as a tree: leaves by region, each a task of its own, and the root that combines them.

PostgreSQL holds the whole plan: one row for each leaf, with the parts that it sums. A leaf looks at its row and does
what is due: summarise its payloads, then, once every leaf has, sum those that count. A task that was lost, or died, is
sent again by the sweep; one that comes twice finds nothing to do. The seed stands for the exact payloads of a plan:
whatever is computed for another plan is not written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog
from sqlalchemy.orm import Session

from market.domain.nodes.regions import latency_matrix, leaves, regions
from market.jobs import repository as jobs_repository
from market.platform.db.base import utc_now
from market.platform.db.session import Database, enqueue_after_commit
from market.platform.storage.client import Storage
from market.platform.storage.errors import BlobCorrupt, BlobNotFound
from market.providers import service as providers
from market.settings import Settings
from market.training.aggregation import repository as aggregation_repository
from market.training.aggregation.models import AggregationLeaf
from market.training.aggregation.payloads import AggregationInput, PayloadsLost, payloads_of
from market.training.checkpoints import repository as checkpoints_repository
from market.training.checkpoints.service import load_outer
from market.training.units import repository as units_repository
from market.training.units.models import Unit
from training_gym.aggregate.aggregation import PartialSum, sketch_seed
from training_gym.aggregate.robust import Verdict
from training_gym.aggregate.tree import (
    Summary,
    decide_together,
    leaf_sum,
    load_sum,
    merge_all,
    save_sum,
    sum_bytes,
    summarise,
)
from training_gym.spec.config import TrainingSpec
from zoo_protocol.hashing import from_hex, to_hex

PAYLOAD_LOST = "payload_lost"
"""Why a unit is in no aggregate whose payload storage does not have any more."""


_log = structlog.get_logger(__name__)


class SumLost(Exception):
    """Storage does not have a leaf's sum any more: a disk failed, or another job had an equal one and let go of it.

    Attributes:
        cid: of the sum.
    """

    def __init__(self, cid: str) -> None:
        super().__init__(f"storage has lost the sum {cid}")
        self.cid = cid


def shape(
    session: Session, settings: Settings, spec: TrainingSpec, parts: Sequence[AggregationInput], holders: dict[int, str]
) -> list[list[AggregationInput]]:
    """The parts of each leaf, by region and in order; a single leaf where a tree would only cost time.

    Args:
        holders: the provider of each unit, by the unit's id.
    """
    undigested = not all(part.sha256 for part in parts)  # delivered before digests were kept
    if undigested or len(parts) * spec.num_parameters() < settings.tree_aggregation_min_values:
        return [list(parts)]
    known = providers.nodes_among(session, settings, sorted(set(holders.values())), utc_now())
    trips = [known[holders[part.unit_id]].round_trip_ms for part in parts]
    return [[parts[row] for row in leaf] for leaf in leaves(regions(latency_matrix(trips)))]


def plan(session: Session, job_id: str, round_: int, shares: Sequence[Sequence[AggregationInput]]) -> None:
    """Write the leaves' rows and wake their tasks; the caller has locked the job."""
    seed = to_hex(sketch_seed({part.place: from_hex(part.sha256) for share in shares for part in share}))
    for leaf, share in enumerate(shares):
        parts = [part.as_dict() for part in share]
        session.add(AggregationLeaf(job_id=job_id, round=round_, leaf=leaf, seed=seed, parts=parts))
    enqueue_leaf_tasks(session, job_id, round_, range(len(shares)))


def enqueue_leaf_tasks(session: Session, job_id: str, round_: int, numbers: Sequence[int]) -> None:
    """Send the leaves' tasks once this unit of work has committed."""
    for leaf in numbers:
        enqueue_after_commit(session, "jobs.aggregate_leaf", job_id, str(round_), str(leaf))


def parts_of(leaf: AggregationLeaf) -> list[AggregationInput]:
    """The parts that a leaf sums."""
    return [AggregationInput(**part) for part in leaf.parts]


def still_delivered(found: Sequence[AggregationLeaf], units: Mapping[int, Unit]) -> bool:
    """Whether none of the leaves' units was rejected since they were planned."""
    return all_delivered([part for leaf in found for part in parts_of(leaf)], units)


def all_delivered(parts: Sequence[AggregationInput], units: Mapping[int, Unit]) -> bool:
    """Whether all the parts' units are among ``units`` and still to be joined; a rejected one must not stay in."""
    return all(part.unit_id in units and can_be_joined(units[part.unit_id]) for part in parts)


def can_be_joined(unit: Unit) -> bool:
    """Whether a unit's payload is there for an aggregate, and in none yet."""
    return unit.status in units_repository.DELIVERED_UNIT and unit.included is None


def combine(
    storage: Storage, spec: TrainingSpec, found: Sequence[AggregationLeaf]
) -> tuple[PartialSum, dict[int, Verdict]]:
    """The root's part: the sum over all leaves, which are all done, and the verdict on each payload by place.

    Raises:
        SumLost: a leaf has to sum again.
        StorageError: storage failed.
    """
    decision = decide_together(Summary.from_json(leaf.summary or {}) for leaf in found)
    return merge_all(_stored_sum(storage, spec, leaf.sum_cid or "") for leaf in found), decision.verdicts


def _stored_sum(storage: Storage, spec: TrainingSpec, cid: str) -> PartialSum:
    try:
        return load_sum(storage.get(cid, max_bytes=sum_bytes(spec)))
    except (BlobNotFound, BlobCorrupt) as error:
        raise SumLost(cid) from error


def recompute_sum(session: Session, job_id: str, round_: int, cid: str) -> None:
    """Have the leaves whose sum has this CID compute it anew."""
    jobs_repository.lock_job(session, job_id)
    lost = [leaf for leaf in aggregation_repository.leaves_of_round(session, job_id, round_) if leaf.sum_cid == cid]
    for leaf in lost:
        leaf.sum_cid = None
    enqueue_leaf_tasks(session, job_id, round_, [leaf.leaf for leaf in lost])


def leave_out_lost(database: Database, job_id: str, lost: PayloadsLost) -> None:
    """Go on without payloads that storage has lost: nobody's fault, and their units are verified and paid as ever."""
    _log.error("payloads lost by storage", job=job_id, units=sorted(lost.unit_ids))
    with database.transaction() as session:
        jobs_repository.lock_job(session, job_id)
        units_repository.leave_out(session, job_id, lost.unit_ids, PAYLOAD_LOST)
        enqueue_after_commit(session, "jobs.aggregate", job_id)


def unpin_sums(storage: Storage, found: Sequence[AggregationLeaf]) -> None:
    """Let go of the leaves' sums: nothing needs them once the round is closed. Raises StorageUnavailable."""
    for leaf in found:
        if leaf.sum_cid is not None:
            storage.unpin(leaf.sum_cid)


@dataclass(frozen=True, slots=True)
class _Due:
    """What a leaf has to do: summarise, or, with all leaves' summaries at hand, sum."""

    seed: str
    spec: TrainingSpec
    checkpoint_cid: str
    parts: list[AggregationInput]
    summaries: list[Summary] | None


def work_leaf(database: Database, storage: Storage, job_id: str, round_: int, leaf: int) -> None:
    """Do what is due for one leaf, up to two steps; nothing if that is done, or another worker is at it.

    Raises:
        StorageError: storage failed; the sweep has it tried again.
    """
    with database.advisory_lock(f"leaf:{job_id}:{round_}:{leaf}") as alone:
        while alone and (due := _due(database, job_id, round_, leaf)) is not None:
            last = load_outer(storage, due.spec, due.checkpoint_cid).aggregate
            try:
                payloads = payloads_of(storage, due.spec, due.parts)
            except PayloadsLost as lost:
                leave_out_lost(database, job_id, lost)
                return
            if due.summaries is None:
                summary = summarise(due.spec, payloads, last, from_hex(due.seed))
                _note(database, job_id, round_, leaf, due.seed, summary=summary)
            else:
                weights = {part.place: part.weight for part in due.parts}
                total = leaf_sum(due.spec, payloads, weights, decide_together(due.summaries))
                stored = storage.put(save_sum(total), max_bytes=sum_bytes(due.spec))
                if not _note(database, job_id, round_, leaf, due.seed, sum_cid=stored.cid):
                    storage.unpin(stored.cid)


def _due(database: Database, job_id: str, round_: int, leaf: int) -> _Due | None:
    with database.transaction() as session:
        found = {row.leaf: row for row in aggregation_repository.leaves_of_round(session, job_id, round_)}
        job, checkpoint = (
            jobs_repository.job(session, job_id),
            checkpoints_repository.checkpoint(session, job_id, round_),
        )
        if leaf not in found or job is None or checkpoint is None:
            return None
        own = found[leaf]
        summaries = [Summary.from_json(row.summary) for row in found.values() if row.summary is not None]
        if own.sum_cid is not None or (own.summary is not None and len(summaries) < len(found)):
            return None
        return _Due(
            own.seed,
            TrainingSpec.from_dict(job.spec),
            checkpoint.cid,
            parts_of(own),
            None if own.summary is None else summaries,
        )


def _note(
    database: Database,
    job_id: str,
    round_: int,
    leaf: int,
    seed: str,
    *,
    summary: Summary | None = None,
    sum_cid: str | None = None,
) -> bool:
    """Write what a leaf computed, if its plan still stands; who is last of all leaves wakes the next step.

    Returns:
        Whether it is written, or some other leaf has this sum.
    """
    with database.transaction() as session:
        jobs_repository.lock_job(session, job_id)  # or two leaves that end at once would each wait for the other
        found = {row.leaf: row for row in aggregation_repository.leaves_of_round(session, job_id, round_)}
        if leaf not in found or found[leaf].seed != seed:
            return sum_cid is not None and any(row.sum_cid == sum_cid for row in found.values())
        if summary is not None:
            found[leaf].summary = summary.to_json()
            if all(row.summary is not None for row in found.values()):
                enqueue_leaf_tasks(session, job_id, round_, list(found))
        else:
            found[leaf].sum_cid = sum_cid
            if all(row.sum_cid is not None for row in found.values()):
                enqueue_after_commit(session, "jobs.aggregate", job_id)
        return True
