"""Audit log with search: transitions of state machines, acts of admins, sign-ins."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from sqlalchemy import or_, select

from market.console.page import Audience, Page
from market.console.tables import Column, Filter, Table
from market.console.visits import CurrentVisit
from market.platform.events.models import AuditEvent

router = APIRouter()
PAGE = Page("/audit", "Audit log", "System", Audience.STAFF, router)
_COLUMNS = (
    Column("time", "Time", AuditEvent.id),
    Column("subject", "Subject"),
    Column("event", "Event"),
    Column("change", "Change"),
    Column("reason", "Reason"),
    Column("actor", "Actor"),
)
_ENTRIES = select(
    *(AuditEvent.id, AuditEvent.created_at, AuditEvent.subject_kind, AuditEvent.subject_id, AuditEvent.event),
    *(AuditEvent.from_status, AuditEvent.to_status, AuditEvent.reason, AuditEvent.actor),
)
_KINDS = (
    "account",
    "act",
    "challenge",
    "dispute",
    "governance",
    "job",
    "lease",
    "omission",
    "organisation",
    "provider",
    "replay",
    "sample",
    "tx_intent",
    "unit",
    "window",
)
_FILTERS = (
    Filter("kind", "Kind", lambda value: AuditEvent.subject_kind == value, _KINDS),
    Filter(
        "q",
        "Id, address or event",
        lambda value: or_(AuditEvent.subject_id == value, AuditEvent.actor == value, AuditEvent.event == value),
    ),
)


@router.get("/audit")
def show_audit(visit: CurrentVisit) -> HTMLResponse:
    """Return the page."""
    table = Table(visit, "audit", _COLUMNS, "-time", AuditEvent.id, _FILTERS)
    with visit.services.database.reading() as session:
        table.fetch(session, _ENTRIES)
    return visit.render("operate/audit.html", table=table)
