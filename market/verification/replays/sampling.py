"""Sampling of segments from a window's seed, and reveal leases."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from market.domain.lifecycle import UnitStatus
from market.domain.network import NetworkParameters
from market.domain.verification.late_states import final_deadline
from market.domain.verification.lifecycle import SampleEvent, SampleStatus, WindowStatus
from market.platform.db.base import utc_now
from market.platform.db.session import Database
from market.settings import Settings
from market.training.commitments import service as commitments
from market.training.leases import service as leases_service
from market.training.units import service as units_service
from market.training.units import slot_states
from market.training.units.facts import UnitSummary
from market.verification.replays import canaries
from market.verification.samples import repository as samples_repository
from market.verification.samples.models import Sample
from market.verification.samples.transitions import transition_sample
from market.verification.windows import repository as windows_repository
from market.verification.windows.models import Window
from market.verification.windows.service import rate_bps
from zoo_protocol.hashing import from_hex, to_hex
from zoo_protocol.payments.job_record import leaf_of
from zoo_protocol.verification import reveal_deadline
from zoo_protocol.verification.sampling import draw_segments


def draw_samples(database: Database, settings: Settings, network: NetworkParameters) -> None:
    """Sample delivered units whose window has its seed, each in its own transaction."""
    with database.transaction() as session:
        undrawn = [
            (window, unit.id)
            for window in windows_repository.windows(session, WindowStatus.LATCHED)
            for unit in commitments.window_units(session, window.id)
            if unit.status == UnitStatus.UPLOADED
        ]
    for window, unit_id in undrawn:
        with database.transaction() as session:
            unit = units_service.unit_facts(session, unit_id)
            if unit.status == UnitStatus.UPLOADED:
                _draw(session, settings, network, window, unit)


def _draw(session: Session, settings: Settings, network: NetworkParameters, window: Window, unit: UnitSummary) -> None:
    assert window.seed is not None  # latched windows have one
    rate = max(unit.sampling_bps or 0, rate_bps(session, network, unit))
    units_service.mark_checking(session, unit.id, rate)
    drawn = draw_segments(from_hex(window.seed), from_hex(unit.trace_root), unit.segments, rate)
    sampled = {sample.segment for sample in samples_repository.samples_of_unit(session, unit.id)}  # if reopened
    drawn = [segment for segment in drawn if segment not in sampled]
    now, deadline = utc_now(), reveal_by(session, settings, unit, drawn)
    for segment in drawn:
        sample = Sample(unit_id=unit.id, segment=segment, status=SampleStatus.DRAWN, reveal_deadline_at=deadline)
        sample.reveal_requested_at = now
        sample.reveal_until_at = final_deadline(now, deadline, network.min_withheld_seconds)
        canaries.schedule_canary(settings, unit, drawn, sample)
        session.add(sample)
        session.flush()
        if segment == 0 and not slot_states.starts_privately(session, unit.id):  # verifiers have the checkpoint
            transition_sample(session, sample, SampleEvent.REVEAL)
        else:  # in this transaction, so that a restarted market has requested it in time
            request_state(session, unit, sample)


def request_state(session: Session, unit: UnitSummary, sample: Sample) -> None:
    """Offer a lease for a sampled segment's start state, until its final deadline."""
    assert sample.reveal_until_at is not None  # set with the sample
    slot_state_cid = unit.start_slot_state_cid if slot_states.starts_privately(session, unit.id) else None
    task = {"segment": sample.segment, "slot_state_cid": slot_state_cid}
    sample.reveal_lease_id = offer_reveal(session, unit, task, sample.reveal_until_at)


def offer_reveal(session: Session, unit: UnitSummary, task: dict[str, Any], until: datetime) -> str:
    """Offer the unit's provider a lease to reveal states until ``until``; return the lease's id.

    ``task`` has the ``segment`` of the requested start state (0: none) and the requested ``slot_state_cid``, if any.
    """
    place = {"job_id": unit.job_id, "round": unit.round, "slot": unit.slot}
    lease = leases_service.create_lease(
        session,
        kind="reveal",
        holder=unit.provider,
        job_id=unit.job_id,
        task={**place, "unit_id": to_hex(leaf_of(unit.commitment)), **task},
        unit_id=unit.id,
        seconds=(until - utc_now()).total_seconds(),
    )
    return lease.id


def reveal_by(session: Session, settings: Settings, unit: UnitSummary, segments: Sequence[int]) -> datetime:
    """Return the deadline for the start states of these segments.

    A link transfers one state after the other. So the transfer time begins after the deadlines of the provider's
    earlier requests that are open.
    """
    leases = timedelta(seconds=reveal_deadline.LEASES * settings.lease_seconds)
    transfer = timedelta(seconds=slot_states.reveal_bytes(session, unit, segments) / reveal_deadline.BYTES_PER_SECOND)
    before = samples_repository.last_reveal_deadline(session, units_service.unverified_units_of(session, unit.provider))
    return max(utc_now() + leases, before or utc_now()) + transfer
