"""Read models of units for other packages, and their training specs."""

from dataclasses import dataclass
from typing import Any

from market.domain.money import unit_price
from market.jobs.models import Job
from market.platform.db.rows import from_row
from market.training.units.models import Unit
from training_gym.compress.link_adaptation import with_top_k
from training_gym.spec.config import TrainingSpec
from zoo_protocol.messages import UnitCommitment


@dataclass(frozen=True, slots=True)
class UnitSummary:
    """One unit with the terms of its job; ``spec`` has the unit's own ``top_k``.

    ``leaves`` and ``salt`` are private until the unit is decided.
    """

    id: int
    job_id: str
    round: int
    slot: int
    provider: str
    status: str
    reason: str | None
    exclusion_reason: str | None  # of its payload, from the aggregation
    start_checkpoint_cid: str
    start_slot_state_cid: str | None
    start_restored_payload_cid: str | None
    start_eager_payload_cid: str | None
    environment_class: str
    segments: int
    spec: dict[str, Any]
    top_k: int | None
    trace_root: str
    payload_hash: str
    commitment_signature: str
    payload_cid: str
    slot_state_cid: str
    salt: str
    leaves: list[str]
    window_id: int | None
    sampling_bps: int | None
    tolerated_segments: list[int]  # sampled, and passed by tolerance alone
    min_sampling_bps: int
    gross_wei: int  # cost to the payer, if it is verified

    @property
    def commitment(self) -> UnitCommitment:
        """Return the message that the provider signed; valid once there is a trace root."""
        return UnitCommitment(self.job_id, self.round, self.slot, self.provider, self.trace_root, self.payload_hash)


def unit_spec(job: Job, unit: Unit) -> TrainingSpec:
    return with_top_k(TrainingSpec.from_dict(job.spec), unit.top_k)


def _spec_document(job: Job, unit: Unit) -> dict[str, Any]:
    """Return :func:`unit_spec` as JSON without parsing the job's specification for each unit."""
    if unit.top_k is None:
        return job.spec
    return job.spec | {"training_config": job.spec["training_config"] | {"top_k": unit.top_k}}


def facts(job: Job, unit: Unit) -> UnitSummary:
    return from_row(
        UnitSummary,
        unit,
        environment_class=job.environment_class or "",
        segments=job.segments,
        spec=_spec_document(job, unit),
        leaves=unit.leaves or [],
        tolerated_segments=unit.tolerated_segments or [],
        min_sampling_bps=job.sampling_bps,
        gross_wei=unit_price(job.clearing_price_wei or 0, job.unit_weight_us),
        trace_root=unit.trace_root or "",
        payload_hash=unit.payload_hash or "",
        commitment_signature=unit.commitment_signature or "",
        payload_cid=unit.payload_cid or "",
        slot_state_cid=unit.slot_state_cid or "",
        salt=unit.salt or "",
    )
