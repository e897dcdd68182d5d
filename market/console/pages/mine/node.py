"""A node's own page: state, work, deadlines, disputes, earnings and record."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from market.console.page import Audience, Page
from market.console.pages.providers import record_values, release_of
from market.console.reads import mine as reads
from market.console.reads import providers as provider_reads
from market.console.visits import CurrentVisit
from market.domain.network import BPS
from market.providers.errors import NotRegistered

router = APIRouter()
PAGE = Page("/my/node", "My node", "You", Audience.NODE, router)


@router.get("/my/node")
def show_node(visit: CurrentVisit) -> HTMLResponse:
    """Return the page."""
    address, network = visit.wallet.address, visit.services.network
    with visit.services.database.reading() as session:
        record = provider_reads.read_record(session, address)
        if record is None:
            raise NotRegistered(f"{address} has not registered")
        now = reads.node_now(session, record.provider)
        release = release_of(session, visit, record.provider)
    return visit.render(
        "mine/node.html",
        now_at_work=now,
        expected_wei=(now.undecided_wei + now.verified_wei) * (BPS - network.fee_bps) // BPS,
        unbonding_seconds=network.unbonding_seconds,
        **record_values(visit, record, release),
    )
