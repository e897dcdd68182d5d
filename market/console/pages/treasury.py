"""Public page of the treasury."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from market.chain.views import ChainViews
from market.console.page import Audience, Page
from market.console.visits import CurrentVisit

router = APIRouter()
PAGE = Page("/treasury", "Treasury", "Network", Audience.PUBLIC, router)


@router.get("/treasury")
def show_treasury(visit: CurrentVisit) -> HTMLResponse:
    """Return the page with the treasury's receipts, expenses and balances at the latest block."""
    return visit.render("treasury.html", treasury=visit.services.part(ChainViews).treasury())
