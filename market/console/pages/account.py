"""Page of the signed-in wallet: roles and sessions, which it can end."""

from typing import Annotated

from fastapi import APIRouter, Form
from fastapi.responses import HTMLResponse, RedirectResponse

from market.console.page import Audience, Page
from market.console.sessions import service as sessions
from market.console.visits import CurrentVisit
from market.platform.http.types import RowId

router = APIRouter()
PAGE = Page("/account", "Sessions", "You", Audience.SIGNED_IN, router)


@router.get("/account")
def show_account(visit: CurrentVisit) -> HTMLResponse:
    """Return the page."""
    with visit.services.database.reading() as session:
        found = sessions.list_sessions(session, visit.wallet.address)
    return visit.render("account/account.html", sessions=found, idle=sessions.IDLE)


@router.post("/account/end-session")
def end_session(visit: CurrentVisit, session_id: Annotated[RowId, Form()]) -> RedirectResponse:
    """End one session of the wallet."""
    with visit.services.database.transaction() as session:
        sessions.end_session(session, visit.wallet.address, session_id)
    return visit.back_to("/account")


@router.post("/account/end-all")
def end_all(visit: CurrentVisit) -> RedirectResponse:
    """End all sessions of the wallet, this one too."""
    with visit.services.database.transaction() as session:
        sessions.end_session(session, visit.wallet.address, None)
    return visit.back_to("/sign-in")
