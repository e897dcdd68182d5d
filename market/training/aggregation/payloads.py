"""Inputs of a round's aggregation, and their published record."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from market.jobs.models import Job
from market.platform.storage.client import Storage
from market.platform.storage.errors import BlobCorrupt, BlobNotFound
from market.training.units.models import Unit
from training_gym.aggregate.robust import WEIGHT_ONE, Verdict
from training_gym.compress.payload_format import payload_size
from training_gym.exchange.deadlines import staleness_weight
from training_gym.runtime.threads import map_in_threads
from training_gym.spec.config import TrainingSpec
from training_gym.spec.manifests import MAX_MANIFEST_BYTES
from zoo_protocol.payments.job_record import AggregationRecord, PlacedPayload
from zoo_protocol.verification.training_faults import Rollback


class PayloadsLost(Exception):
    """Storage serves the round's checkpoint but lacks delivered payloads, or their bytes."""

    def __init__(self, unit_ids: frozenset[int]) -> None:
        super().__init__(f"Storage does not serve the payloads of units {sorted(unit_ids)}.")
        self.unit_ids = unit_ids


@dataclass(frozen=True, slots=True)
class AggregationInput:
    """One unit's payload in a round's aggregation.

    Attributes:
        place: position among the payloads: the slot, or beyond all slots for payloads of earlier rounds.
        weight: in units of 1 / ``WEIGHT_ONE``.
        sha256: of the payload, 0x hex.
    """

    place: int
    unit_id: int
    round: int
    slot: int
    payload_cid: str
    sha256: str
    weight: int


def aggregation_input(job: Job, unit: Unit) -> AggregationInput:
    """Return a delivered unit's input to the job's current round. A late payload weighs less."""
    assert unit.payload_cid is not None  # delivered units have one
    return AggregationInput(
        place=unit.slot + (job.current_round - unit.round) * job.nodes,
        unit_id=unit.id,
        round=unit.round,
        slot=unit.slot,
        payload_cid=unit.payload_cid,
        sha256=unit.payload_sha256 or "",
        weight=staleness_weight(unit.rounds_late or 0),
    )


def payloads_of(storage: Storage, spec: TrainingSpec, parts: Iterable[AggregationInput]) -> dict[int, bytes]:
    """Return the payloads by place; read the checkpoint first to detect a storage outage.

    Raises:
        PayloadsLost: some are lost.
        StorageError: storage failed.
    """
    limit, listed = payload_size(spec), list(parts)

    def read(part: AggregationInput) -> bytes | None:
        try:
            return storage.get(part.payload_cid, max_bytes=limit)
        except (BlobNotFound, BlobCorrupt):
            return None

    found = dict(zip(listed, map_in_threads(read, listed), strict=True))
    if lost := frozenset(part.unit_id for part, payload in found.items() if payload is None):
        raise PayloadsLost(lost)
    return {part.place: payload for part, payload in found.items() if payload is not None}


def store_record(
    storage: Storage,
    job_id: str,
    round_: int,
    checkpoint_cid: str,
    parts: Iterable[AggregationInput],
    verdicts: Mapping[int, Verdict],
    rollback: Rollback | None = None,
) -> str:
    """Store the record that makes the aggregation after ``round_`` recomputable; return its CID.

    Raises StorageError.
    """
    placed = [
        PlacedPayload(part.place, part.round, part.slot, part.payload_cid, part.weight, verdicts[part.place].code)
        for part in sorted(parts, key=lambda part: part.place)
    ]
    went_back = () if rollback is None else (rollback.to, rollback.reason)
    record = AggregationRecord(job_id, round_, checkpoint_cid, WEIGHT_ONE, placed, *went_back)
    return storage.put(record.to_bytes(), max_bytes=MAX_MANIFEST_BYTES).cid
