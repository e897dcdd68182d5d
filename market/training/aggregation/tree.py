"""Tree aggregation of a round: a task per leaf (by region), and the root that merges.

PostgreSQL holds the plan, one row per leaf with its inputs. A leaf task does the step that is due: summarise its
payloads; then, once all leaves are summarised, sum the included ones. Tasks are idempotent, and the sweep repeats lost
ones. The seed identifies the payloads of a plan: results computed for another plan are not stored.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import structlog
from sqlalchemy.orm import Session

from market.domain.lifecycle import JobStatus
from market.domain.nodes.regions import latency_matrix, leaves, regions
from market.jobs import repository as jobs_repository
from market.platform.db.base import utc_now
from market.platform.db.session import Database, enqueue_after_commit
from market.platform.storage.client import Storage
from market.platform.storage.errors import BlobCorrupt, BlobNotFound
from market.providers import service as providers
from market.settings import Settings
from market.training.aggregation import repository as aggregation_repository
from market.training.aggregation.lost_inputs import fails_overdue_job
from market.training.aggregation.memory import has_memory
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
    sum_bytes,
    sum_pieces,
    summarise,
)
from training_gym.spec.config import TrainingSpec
from zoo_protocol.hashing import from_hex, to_hex
from zoo_protocol.payments.job_record import PAYLOAD_LOST

_log = structlog.get_logger(__name__)


class SumLost(Exception):
    """Storage has lost a leaf's sum: disk failure, or an equal sum of another job was unpinned."""

    def __init__(self, cid: str) -> None:
        super().__init__(f"Storage does not serve the sum {cid}.")
        self.cid = cid


def shape(
    session: Session, settings: Settings, spec: TrainingSpec, parts: Sequence[AggregationInput], holders: dict[int, str]
) -> list[list[AggregationInput]]:
    """Return the inputs of each leaf, by region and in order; one leaf if a tree is slower."""
    undigested = not all(part.sha256 for part in parts)  # units of older releases have no digest
    if undigested or len(parts) * spec.num_parameters() < settings.tree_aggregation_min_values:
        return [list(parts)]
    known = providers.nodes_among(session, settings, sorted(set(holders.values())), utc_now())
    trips = [known[holders[part.unit_id]].round_trip_ms for part in parts]
    return [[parts[row] for row in leaf] for leaf in leaves(regions(latency_matrix(trips)))]


def plan(session: Session, job_id: str, round_: int, shares: Sequence[Sequence[AggregationInput]]) -> None:
    """Insert the leaves and enqueue their tasks. The caller has locked the job."""
    seed = to_hex(sketch_seed({part.place: from_hex(part.sha256) for share in shares for part in share}))
    for leaf, share in enumerate(shares):
        parts = [asdict(part) for part in share]
        session.add(AggregationLeaf(job_id=job_id, round=round_, leaf=leaf, seed=seed, parts=parts))
    enqueue_leaf_tasks(session, job_id, round_, range(len(shares)))


def enqueue_leaf_tasks(session: Session, job_id: str, round_: int, numbers: Sequence[int]) -> None:
    for leaf in numbers:
        enqueue_after_commit(session, "jobs.aggregate_leaf", job_id, str(round_), str(leaf))


def inputs_of(leaf: AggregationLeaf) -> list[AggregationInput]:
    return [AggregationInput(**part) for part in leaf.parts]


def is_usable(found: Sequence[AggregationLeaf], units: Mapping[int, Unit]) -> bool:
    """Return False if a unit was rejected after the plan, or the rules have changed."""
    delivered = all_delivered([part for leaf in found for part in inputs_of(leaf)], units)
    return delivered and _have_these_rules(found)


def _have_these_rules(found: Iterable[AggregationLeaf]) -> bool:
    """Return False if another release summarised a leaf; it may decide otherwise."""
    return all(leaf.summary is None or Summary.is_of_these_rules(leaf.summary) for leaf in found)


def all_delivered(parts: Sequence[AggregationInput], units: Mapping[int, Unit]) -> bool:
    """Return True if all inputs can be aggregated; a rejected unit must not enter the model."""
    return all(part.unit_id in units and can_be_aggregated(units[part.unit_id]) for part in parts)


def can_be_aggregated(unit: Unit) -> bool:
    """Return True if the unit is delivered and in no aggregation yet."""
    return unit.status in units_repository.DELIVERED_UNIT and unit.included is None


def verdicts_of(found: Sequence[AggregationLeaf]) -> dict[int, Verdict]:
    """Return the verdict by place from the summaries of all leaves."""
    return decide_together(Summary.from_json(leaf.summary or {}) for leaf in found).verdicts


def combine(storage: Storage, spec: TrainingSpec, found: Sequence[AggregationLeaf]) -> PartialSum:
    """Return the root's sum over all leaves, which are all done.

    Raises:
        SumLost: a leaf must be summed again.
        StorageError: storage failed.
    """
    return merge_all(_stored_sum(storage, spec, leaf.sum_cid or "") for leaf in found)


def _stored_sum(storage: Storage, spec: TrainingSpec, cid: str) -> PartialSum:
    data = bytearray()
    try:
        for piece in storage.open_stream(cid, max_bytes=sum_bytes(spec)):
            data += piece
        return load_sum(data)
    except (BlobNotFound, BlobCorrupt) as error:
        raise SumLost(cid) from error


def recompute_sum(session: Session, job_id: str, round_: int, cid: str) -> None:
    """Enqueue the leaves whose sum has this CID to compute it again."""
    jobs_repository.lock_job(session, job_id)
    lost = [leaf for leaf in aggregation_repository.leaves_of_round(session, job_id, round_) if leaf.sum_cid == cid]
    for leaf in lost:
        leaf.sum_cid = None
    enqueue_leaf_tasks(session, job_id, round_, [leaf.leaf for leaf in lost])


def exclude_lost_payloads(database: Database, job_id: str, lost: PayloadsLost) -> None:
    """Continue without payloads that storage lost; their units are verified and paid."""
    _log.error("payloads_lost", job=job_id, units=sorted(lost.unit_ids))
    with database.transaction() as session:
        jobs_repository.lock_job(session, job_id)
        units_repository.exclude_payloads(session, job_id, lost.unit_ids, PAYLOAD_LOST)
        enqueue_after_commit(session, "jobs.aggregate", job_id)


def drop_stale_leaves(database: Database, storage: Storage, job_id: str) -> None:
    """Delete the trees of closed rounds, and of the current one if it is not usable any more.

    Raises:
        StorageUnavailable: the sums were not unpinned; the next call does it.
    """
    # Sums are unpinned before the rows are deleted, so that an interruption in between is repaired by the next call.
    with database.transaction() as session:
        job = jobs_repository.job(session, job_id)
        found = aggregation_repository.leaves_of_job(session, job_id)
        if not found:
            return
        number = job.current_round if job is not None and job.status == JobStatus.RUNNING else None
        current = [leaf for leaf in found if leaf.round == number]
        if number is not None and is_usable(current, units_repository.units_and_late(session, job_id, number)):
            found = [leaf for leaf in found if leaf.round != number]
    for leaf in found:
        if leaf.sum_cid is not None:
            storage.unpin(leaf.sum_cid)
    with database.transaction() as session:
        aggregation_repository.drop_leaves(session, job_id, {leaf.round for leaf in found})


@dataclass(frozen=True, slots=True)
class _LeafTask:
    """Due step of a leaf: summarise, or sum if ``summaries`` has those of all leaves."""

    seed: str
    spec: TrainingSpec
    checkpoint_cid: str
    parts: list[AggregationInput]
    summaries: list[Summary] | None


def work_leaf(database: Database, settings: Settings, storage: Storage, job_id: str, round_: int, leaf: int) -> None:
    """Do the due steps of one leaf, unless another worker does them. Raises StorageError."""
    lock = database.advisory_lock(f"leaf:{job_id}:{round_}:{leaf}")
    with lock as alone, fails_overdue_job(database, settings, storage, job_id):
        while alone and (due := _due(database, job_id, round_, leaf)) is not None:
            if not has_memory(settings, due.spec, len(due.parts), job_id):
                return
            last = load_outer(storage, due.spec, due.checkpoint_cid).aggregate
            try:
                payloads = payloads_of(storage, due.spec, due.parts)
            except PayloadsLost as lost:
                exclude_lost_payloads(database, job_id, lost)
                return
            if due.summaries is None:
                weights = {part.place: part.weight for part in due.parts}
                summary = summarise(due.spec, payloads, weights, last, from_hex(due.seed))
                _store_result(database, job_id, round_, leaf, due.seed, summary=summary)
            else:
                total = leaf_sum(due.spec, payloads, decide_together(due.summaries))
                stored = storage.put(sum_pieces(total), max_bytes=sum_bytes(due.spec))
                if not _store_result(database, job_id, round_, leaf, due.seed, sum_cid=stored.cid):
                    storage.unpin(stored.cid)


def _due(database: Database, job_id: str, round_: int, leaf: int) -> _LeafTask | None:
    with database.transaction() as session:
        found = {row.leaf: row for row in aggregation_repository.leaves_of_round(session, job_id, round_)}
        job = jobs_repository.job(session, job_id)
        checkpoint = checkpoints_repository.checkpoint(session, job_id, round_)
        if leaf not in found or job is None or job.status != JobStatus.RUNNING or checkpoint is None:
            return None
        if not _have_these_rules(found.values()):  # the next sweep drops these leaves
            return None
        own = found[leaf]
        summaries = [Summary.from_json(row.summary) for row in found.values() if row.summary is not None]
        if own.sum_cid is not None or (own.summary is not None and len(summaries) < len(found)):
            return None
        spec, due = TrainingSpec.from_dict(job.spec), None if own.summary is None else summaries
        return _LeafTask(own.seed, spec, checkpoint.cid, inputs_of(own), due)


def _store_result(
    database: Database,
    job_id: str,
    round_: int,
    leaf: int,
    seed: str,
    *,
    summary: Summary | None = None,
    sum_cid: str | None = None,
) -> bool:
    """Store a leaf's result if its plan is current; the last leaf enqueues the next step.

    Returns:
        True if it is stored, or another leaf has the same sum.
    """
    with database.transaction() as session:
        jobs_repository.lock_job(session, job_id)  # otherwise two leaves that finish at once miss each other's result
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
