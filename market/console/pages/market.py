"""Market: order books with depth and prices, flow of jobs, supply, waiting jobs."""

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse
from sqlalchemy.orm import Session

from market.auctions.service import parse_book
from market.console import charts
from market.console.page import Audience, Page
from market.console.reads import market as reads
from market.console.visits import CurrentVisit
from market.domain.network import NetworkParameters
from market.platform.db.base import utc_now

router = APIRouter()
PAGE = Page("/market", "Market", "Network", Audience.PUBLIC, router)
FLOW_DAYS = 7
Days = Annotated[int, Query(ge=1, le=90)]


@router.get("/market")
def show_market(visit: CurrentVisit, book: str = "", days: Days = FLOW_DAYS) -> HTMLResponse:
    """Return the page with one book's charts; default: the first one."""
    network, now = visit.services.network, utc_now()
    with visit.services.database.reading() as session:
        books = reads.books(session, network)
        names = {line.name for line in books}
        chosen = book if book in names else next((line.name for line in books), None)
        supply = reads.supply(session)
        values: dict[str, Any] = {
            "books": books,
            "flow": reads.flow(session, now - timedelta(days=days)),
            "supply": supply,
            "waiting": reads.waiting(session, network, supply),
            "chosen": chosen,
        }
        if chosen is not None:
            values |= _book(session, network, chosen, days)
    return visit.render("market/market.html", days=days, tiers={tier.id: tier.name for tier in network.tiers}, **values)


def _book(session: Session, network: NetworkParameters, name: str, days: int) -> dict[str, Any]:
    """Return the charts of a book."""
    book = parse_book(network, name)
    history = reads.price_history(session, book, utc_now(), days)
    prices = [
        (point.start, [charts.decimal_zen(wei) for wei in (point.mean_wei, point.low_wei, point.high_wei)])
        for point in history
    ]
    waits = [(point.start, [point.fill_p50_ms // 1000, point.fill_p90_ms // 1000]) for point in history]
    depth = reads.depth(session, book)
    curves = [] if depth is None else [depth.bids, depth.asks]
    return {
        "prices": charts.time_series(prices, ("mean", "lowest", "highest")),
        "waits": charts.time_series(waits, ("median", "slowest tenth")),
        "depth": depth,
        "curves": charts.step_points(curves),
        "box": f"-4 -4 {charts.WIDTH + 8} {charts.HEIGHT + 8}",
    }
