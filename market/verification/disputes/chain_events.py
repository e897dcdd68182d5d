"""Handlers of final dispute events of the contracts Disputes and JobEscrow."""

from collections.abc import Mapping

import structlog
from sqlalchemy.orm import Session

from market.chain.contracts.codec import ChainEvent
from market.chain.indexer import EventHandler
from market.domain.lifecycle import DISPUTE_STATUSES, DisputeStatus
from market.platform.events.service import CHAIN, record
from market.verification.disputes import repository
from market.verification.disputes.models import Dispute

_log = structlog.get_logger(__name__)


def on_opened(session: Session, event: ChainEvent) -> None:
    args = event.args
    dispute = Dispute(
        id=args["disputeId"],
        unit_key=args["unitId"],
        provider=args["provider"],
        challenger=args["challenger"],
        segments=args["segments"],
        status=DisputeStatus.TRACE,
        draw=0,
        opened_tx=event.tx_hash,
    )
    session.add(dispute)
    _record(session, event, "opened", dispute.challenger)
    _log.warning("dispute_opened", dispute=dispute.id, unit=dispute.unit_key, challenger=dispute.challenger)


def on_turn_started(session: Session, event: ChainEvent) -> None:
    _known(session, event).status = DISPUTE_STATUSES[event.args["status"]]


def on_trace_shown(session: Session, event: ChainEvent) -> None:
    dispute = _known(session, event)
    dispute.environment_class, dispute.states = event.args["environmentClass"], list(event.args["states"])
    _record(session, event, "trace_revealed", dispute.provider)


def on_step_named(session: Session, event: ChainEvent) -> None:
    dispute = _known(session, event)
    dispute.step = event.args["step"]
    _record(session, event, "segment_selected", dispute.challenger)


def on_draw_scheduled(session: Session, event: ChainEvent) -> None:
    dispute = _known(session, event)
    dispute.status, dispute.draw, dispute.committee = DisputeStatus.DRAWING, event.args["draw"], None
    _record(session, event, "draw_scheduled")


def on_committee_drawn(session: Session, event: ChainEvent) -> None:
    dispute = _known(session, event)
    dispute.draw, dispute.committee = event.args["draw"], list(event.args["committee"])
    _record(session, event, "committee_drawn")


def on_ended(session: Session, event: ChainEvent) -> None:
    dispute = _known(session, event)
    dispute.status, dispute.ended_tx = DISPUTE_STATUSES[event.args["outcome"]], event.tx_hash
    _record(session, event, dispute.status)
    _log.warning("dispute_ended", dispute=dispute.id, unit=dispute.unit_key, outcome=dispute.status)


def on_withheld(session: Session, event: ChainEvent) -> None:
    repository.record_held_payout(session, event.args["unitId"], event.args["batchId"])


def on_released(session: Session, event: ChainEvent) -> None:
    repository.delete_held_payout(session, event.args["unitId"])


HANDLERS: Mapping[tuple[str, str], EventHandler] = {
    ("Disputes", "DisputeOpened"): on_opened,
    ("Disputes", "TurnStarted"): on_turn_started,
    ("Disputes", "TraceShown"): on_trace_shown,
    ("Disputes", "StepNamed"): on_step_named,
    ("Disputes", "DrawScheduled"): on_draw_scheduled,
    ("Disputes", "CommitteeDrawn"): on_committee_drawn,
    ("Disputes", "DisputeEnded"): on_ended,
    ("JobEscrow", "UnitWithheld"): on_withheld,
    ("JobEscrow", "UnitRestored"): on_released,
    ("JobEscrow", "UnitStruck"): on_released,
}
"""By (contract, event)."""


def provider_of(session: Session, dispute_id: str) -> str | None:
    """Return the provider of a dispute's unit; None for an unknown dispute."""
    found = repository.dispute(session, dispute_id)
    return None if found is None else found.provider


def _record(session: Session, event: ChainEvent, act: str, actor: str = CHAIN) -> None:
    """Write the audit event of a step, which also makes open pages of the console load it."""
    record(session, ("dispute", event.args["disputeId"]), act, actor=actor, data={"tx": event.tx_hash})


def _known(session: Session, event: ChainEvent) -> Dispute:
    found = repository.lock_dispute(session, event.args["disputeId"])
    assert found is not None, "events come in order: DisputeOpened is first"
    return found
