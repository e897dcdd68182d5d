"""Public page of the treasury by the ledger, and a file of its movements."""

import csv
import io
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, StreamingResponse

from market.chain.service import finalised_cursor
from market.console.page import Audience, Page
from market.console.reads import treasury
from market.console.reads.governance import queued_payments
from market.console.rendering import plain_zen
from market.console.visits import CurrentVisit
from market.governance import service as governance
from market.ledger.reconciliation import last_reconciliation
from market.platform.db.base import utc_now
from market.platform.http.services import Services

router = APIRouter()
PAGE = Page("/treasury", "Treasury", "Network", Audience.PUBLIC, router)
DAYS = 90
_OPERATIONS = 200  # of the timelock, the newest


@router.get("/treasury")
def show_treasury(visit: CurrentVisit) -> HTMLResponse:
    """Return the page; it asks the database only."""
    network, now = visit.services.network, utc_now()
    with visit.services.database.reading() as session:
        contracts = governance.contracts_of(session, visit.deployment, network)
        operations = governance.operations(session, contracts, now, pending=False, limit=_OPERATIONS)
        found = treasury.read_treasury(session, network)
        values: dict[str, object] = {
            "ended": [one for one in operations if one.ended_at and (one.act or "").startswith("treasury.")],
            "treasury": found,
            "is_cut": found.payment_count > len(found.payments),
            "cursor": finalised_cursor(session),
            "balances": _balance_series(treasury.daily_balances(session, DAYS, now)),
            "fees": _fee_series(treasury.daily_fees(session, DAYS, now), visit.services),
            "years": treasury.read_emission(session, network),
            "last": last_reconciliation(session),
            "pending": queued_payments(session, visit.deployment, network, now),
        }
    return visit.render("operate/treasury.html", 200, days=DAYS, **values)


@router.get("/treasury.csv")
def export_movements(visit: CurrentVisit) -> StreamingResponse:
    """Return all movements of the treasury, in wei."""
    headers = {"Content-Disposition": f'attachment; filename="treasury-{utc_now():%Y-%m-%d}.csv"'}
    return StreamingResponse(_lines(visit.services), media_type="text/csv; charset=utf-8", headers=headers)


def _lines(services: Services) -> Iterator[str]:
    yield _line("time_utc", "block", "event", "transaction", "log_index", "amount_wei", "balance_wei")
    with services.database.reading() as session:
        for found in treasury.movements(session):
            tx_hash, _, log_index = found.key.partition(":")
            moment: datetime = found.at
            yield _line(
                moment.isoformat(), found.block, found.event, tx_hash, log_index, found.amount_wei, found.balance_wei
            )


def _line(*values: object) -> str:
    buffer = io.StringIO()
    csv.writer(buffer).writerow(values)
    return buffer.getvalue()


def _balance_series(points: list[tuple[int, int]]) -> dict[str, Any]:
    return {"x": [day for day, _ in points], "y": [[plain_zen(wei) for _, wei in points]], "names": ["balance"]}


def _fee_series(fees: dict[int, dict[int, int]], services: Services) -> dict[str, Any]:
    tiers = [tier for tier in services.network.tiers if any(tier.id in found for found in fees.values())]
    lines = [[plain_zen(found.get(tier.id, 0)) for found in fees.values()] for tier in tiers]
    return {"x": list(fees), "y": lines, "names": [tier.name for tier in tiers]}
