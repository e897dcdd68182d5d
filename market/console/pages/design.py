"""Page that shows the design system: type, colours, badges, tables, forms, charts, states."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from market.console.page import Audience, Page
from market.console.visits import CurrentVisit

router = APIRouter()
PAGE = Page("/design", "Design system", "", Audience.PUBLIC, router)
TONES = ("neutral", "good", "busy", "warn", "bad")
TOKENS = ("surface", "raised", "line", "text", "muted", "accent", "good", "warn", "bad")


@router.get("/design")
def show_design(visit: CurrentVisit) -> HTMLResponse:
    """Return the page."""
    hours = range(24)
    fees, balance = [40 + hour * 7 % 23 for hour in hours], [30 + hour for hour in hours]
    series = {"x": [1_790_000_000 + hour * 3_600 for hour in hours], "y": [fees, balance], "names": ["fees", "balance"]}
    return visit.render("design.html", tones=TONES, tokens=TOKENS, series=series)
