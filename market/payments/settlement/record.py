"""Job records: the units of one settlement line, or of a whole job."""

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy.orm import Session

from market.auctions import service as auctions
from market.domain.lifecycle import UNIT_DECIDED
from market.domain.network import NetworkParameters
from market.jobs import service as jobs
from market.jobs.service import JobSummary
from market.platform.db.rows import from_row
from market.training.checkpoints import service as checkpoints_service
from market.training.units import service as units_service
from market.training.units.facts import UnitSummary
from market.verification.penalties import service as penalties
from market.verification.samples import service as samples
from market.verification.windows import service as windows_service
from zoo_protocol.hashing import to_hex
from zoo_protocol.payments.job_record import PAYLOAD_LOST, JobRecord, UnitRecord, WindowRecord, unit_leaf


def build_record(
    session: Session, network: NetworkParameters, job: JobSummary, paid: Sequence[UnitSummary] | None
) -> JobRecord:
    """Return the job's record (:mod:`zoo_protocol.payments.job_record`), without the CID.

    Args:
        paid: the units that the line pays. None for the line that ends the job, whose units must all be decided.
    """
    units = units_service.job_units(session, job.id) if paid is None else paid
    entered = {unit.window_id for unit in units if unit.window_id is not None}
    # Without nodes it trained nothing, and its first model is deleted soon (training.retention).
    checkpoints = [] if job.times["matched_at"] is None else checkpoints_service.checkpoints_of(session, job.id)
    windows = windows_service.committed_windows(session, entered)
    order = {name: str(value) for name, value in asdict(job.order).items()}
    tier = next(tier for tier in network.tiers if tier.id == job.order.tier)
    return JobRecord(
        job_id=job.id,
        network=network.name,
        tier=tier.name,
        segments=job.segments,
        environment_class=job.environment_class,
        spec_cid=job.spec_cid,
        order=order,
        order_signature=job.order_signature,
        outcome=job.reason or job.status,
        clearing_price_wei_per_gpu_hour=str(job.clearing_price_wei or 0),
        auction=None if job.auction_round_id is None else auctions.summary(session, job.auction_round_id, job.id),
        units=[_unit(session, unit, windows) for unit in units],
        slashes=penalties.job_slashes(session, job.id),
        checkpoints=checkpoints,
        windows=sorted(windows.values(), key=lambda window: window.id),
        initial_loss=checkpoints[0].validation_loss if checkpoints else None,
        final_loss=checkpoints[-1].validation_loss if checkpoints else None,
        final_model_cid=checkpoints[-1].model_cid if checkpoints else None,
        times={name: at.isoformat() for name, at in job.times.items() if at is not None},
        batch_cid=None,
    )


def decided_record(
    session: Session, network: NetworkParameters, job_id: str, round_: int, slot: int
) -> JobRecord | None:
    """Return the record of a round's decided units of a slot; None outside final windows.

    Such units can be disputed on chain before they are settled.
    """
    decided = [unit for unit in units_service.units_at(session, job_id, round_, slot) if unit.status in UNIT_DECIDED]
    if not decided:
        return None
    record = build_record(session, network, jobs.get(session, job_id), decided)
    return record if record.windows else None


def _unit(session: Session, unit: UnitSummary, windows: dict[int, WindowRecord]) -> UnitRecord:
    window = None if unit.window_id is None else windows.get(unit.window_id)
    index = None
    if window is not None:
        leaf = unit_leaf(unit.job_id, unit.round, unit.slot, unit.provider, unit.trace_root, unit.payload_hash)
        index = window.leaves.index(to_hex(leaf))
    is_lost = unit.exclusion_reason == PAYLOAD_LOST
    return from_row(
        UnitRecord,
        unit,
        reason=unit.reason or (PAYLOAD_LOST if is_lost else None),
        window=None if window is None else window.id,
        window_index=index,
        drawn_segments=(drawn := samples.drawn_segments(session, unit.id)),
        leaves=unit.leaves if drawn else [],
        replays=samples.signed_replays(session, unit.id, unit.leaves, unit.environment_class),
        trace_root=unit.trace_root or None,
        payload_hash=unit.payload_hash or None,
        commitment_signature=unit.commitment_signature or None,
        payload_cid=unit.payload_cid or None,
        slot_state_cid=unit.slot_state_cid or None,
        salt=unit.salt or None,
    )
