"""Transactions of the market with their attempts, nonces and fees."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from sqlalchemy import or_, select

from market.chain.models import TxIntent
from market.console.page import Audience, Page
from market.console.tables import Column, Filter, Table
from market.console.visits import CurrentVisit
from market.domain.lifecycle import IntentStatus

router = APIRouter()
PAGE = Page("/transactions", "Transactions", "System", Audience.STAFF, router)
_COLUMNS = (
    Column("id", "Queued", TxIntent.id),
    Column("call", "Call"),
    Column("subject", "Subject"),
    Column("status", "Status"),
    Column("amount", "ZEN", kind="number"),
    Column("nonce", "Nonce", TxIntent.nonce, "number"),
    Column("attempts", "Attempts", kind="number"),
    Column("fee", "Highest fee, gwei", kind="number"),
    Column("tx", "Transaction"),
    Column("updated", "Changed"),
)
_FILTERS = (
    Filter("status", "Status", lambda value: TxIntent.status == value, tuple(IntentStatus)),
    Filter("q", "Kind, subject or hash", lambda value: _matches(value)),
)
TONES = dict.fromkeys(IntentStatus, "busy") | {
    IntentStatus.QUEUED: "neutral",
    IntentStatus.FINAL: "good",
    IntentStatus.REVERTED: "bad",
}


def _matches(value: str) -> Any:
    return or_(TxIntent.kind == value, TxIntent.subject == value, TxIntent.tx_hash == value)


@router.get("/transactions")
def show_transactions(visit: CurrentVisit) -> HTMLResponse:
    """Return the page."""
    table = Table(visit, "tx", _COLUMNS, "-id", TxIntent.id, _FILTERS)
    with visit.services.database.reading() as session:
        table.fetch(session, select(TxIntent))
    return visit.render("operate/transactions.html", table=table, tones=TONES)
