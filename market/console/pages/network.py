"""Public page of the network: tiers, last prices, nodes by status, contracts."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from market.auctions import service as auctions
from market.console.page import Audience, Page
from market.console.visits import CurrentVisit
from market.providers import service as providers

router = APIRouter()
PAGE = Page("/", "Network", "Network", Audience.PUBLIC, router)


@router.get("/")
def show_network(visit: CurrentVisit) -> HTMLResponse:
    """Return the page."""
    network = visit.services.network
    with visit.services.database.reading() as session:
        counts = sorted(providers.count_by_status(session).items())
        last = auctions.last_prices(session)
    prices = {tier.name: last.get(tier.id) for tier in network.tiers}
    return visit.render("market/network.html", counts=counts, prices=prices)
