"""Read-only pages on the network and its treasury, with public facts only."""

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse, HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from market.auctions import service as auctions
from market.chain.contracts.codec import Deployment
from market.chain.views import ChainViews
from market.domain.money import format_zen
from market.platform.http.deps import ServicesDep
from market.platform.http.services import Services
from market.providers import service as providers

router = APIRouter(prefix="/console", include_in_schema=False)

_HERE = Path(__file__).parent
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def zen(wei: int | None) -> str:
    """Return an exact amount in ZEN without trailing zeros; a dash for None."""
    return "–" if wei is None else format_zen(wei)


_templates = Environment(
    loader=FileSystemLoader(_HERE / "templates"),
    autoescape=select_autoescape(),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters["zen"] = zen


@router.get("")
def show_network(services: ServicesDep) -> HTMLResponse:
    """Return the page with tiers and last prices, nodes by status, and addresses."""
    with services.database.transaction() as session:
        counts = sorted(providers.count_by_status(session).items())
        prices = {tier.name: auctions.last_price(session, tier.id) for tier in services.network.tiers}
    return _page("network.html", services, counts=counts, prices=prices)


@router.get("/treasury")
def show_treasury(services: ServicesDep) -> HTMLResponse:
    """Return the page with the treasury's receipts, expenses and balances at the latest block."""
    return _page("treasury.html", services, treasury=services.part(ChainViews).treasury())


@router.get("/console.css")
def get_style() -> FileResponse:
    return FileResponse(_HERE / "console.css", media_type="text/css")


def _page(template: str, services: Services, **values: object) -> HTMLResponse:
    context = {"network": services.network, "deployment": services.part(Deployment), **values}
    return HTMLResponse(_templates.get_template(template).render(context), headers=_HEADERS)
