"""What goes into a round's aggregate: the parts, and the record of them that is published with the next checkpoint."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from market.jobs.models import Job
from market.platform.storage.client import Storage
from market.platform.storage.errors import BlobCorrupt, BlobNotFound
from market.training.units.models import Unit
from training_gym.aggregate.aggregation import WEIGHT_ONE
from training_gym.aggregate.robust import Verdict
from training_gym.compress.payload_format import payload_size
from training_gym.exchange.deadlines import staleness_weight
from training_gym.runtime.threads import in_threads
from training_gym.spec.config import TrainingSpec
from training_gym.spec.manifests import MAX_MANIFEST_BYTES
from zoo_protocol.hashing import canonical_json

RECORD_KIND = "zoo-aggregation/1"


class PayloadsLost(Exception):
    """Storage, which has the round's checkpoint, does not have payloads that were delivered, or has others' bytes.

    Attributes:
        unit_ids: of the units that they are of.
    """

    def __init__(self, unit_ids: frozenset[int]) -> None:
        super().__init__(f"storage has lost the payloads of units {sorted(unit_ids)}")
        self.unit_ids = unit_ids


@dataclass(frozen=True, slots=True)
class AggregationInput:
    """One unit's payload in a round's aggregate.

    Attributes:
        place: where it stands among the payloads: its slot, beyond all slots for those of earlier rounds.
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

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def part_of(job: Job, unit: Unit) -> AggregationInput:
    """The part of a delivered unit in the aggregate of the job's current round; a late one weighs less."""
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
    """The parts' payloads by place; the caller has read the round's checkpoint, or all may be away for a moment.

    Raises:
        PayloadsLost: some are gone.
        StorageError: storage failed.
    """
    limit, listed = payload_size(spec), list(parts)

    def read(part: AggregationInput) -> bytes | None:
        try:
            return storage.get(part.payload_cid, max_bytes=limit)
        except (BlobNotFound, BlobCorrupt):
            return None

    found = dict(zip(listed, in_threads(read, listed), strict=True))
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
) -> str:
    """Publish what the aggregate after ``round_`` was made of, so that anybody makes it again; returns the CID.

    Raises:
        StorageError: storage failed.
    """
    document = {
        "kind": RECORD_KIND,
        "job_id": job_id,
        "round": round_,
        "checkpoint": checkpoint_cid,
        "weight_one": WEIGHT_ONE,
        "payloads": [
            {
                "place": part.place,
                "round": part.round,
                "slot": part.slot,
                "payload": part.payload_cid,
                "weight": part.weight,
                "verdict": verdicts[part.place].code,
            }
            for part in sorted(parts, key=lambda part: part.place)
        ],
    }
    return storage.put(canonical_json(document), max_bytes=MAX_MANIFEST_BYTES).cid
