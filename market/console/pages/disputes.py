"""Verification and disputes: sampling, open disputes, the story of one, verifiers."""

from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import HTMLResponse

from market.console.page import Audience, Page
from market.console.reads import disputes as reads
from market.console.reads.providers import STAKE_WEI
from market.console.tables import Column, Filter, Table
from market.console.visits import CurrentVisit
from market.domain.lifecycle import DISPUTE_STATUSES
from market.domain.nodes.uptime import epoch_of
from market.platform.db.base import utc_now
from market.providers.models import Provider
from market.settings import split_list
from market.verification.disputes.errors import DisputeNotFound
from market.verification.disputes.models import Dispute
from zoo_protocol.verification import dispute_story
from zoo_protocol.verification.sampling import detection_at_rate

router = APIRouter()
PAGE = Page("/disputes", "Verification and disputes", "Network", Audience.PUBLIC, router)
VERIFIER_EPOCHS = 30
DisputeId = Annotated[str, Path(pattern=r"^0x[0-9a-f]{64}$")]
_COLUMNS = (
    Column("opened", "Opened", Dispute.created_at),
    Column("id", "Dispute"),
    Column("status", "Status", Dispute.status),
    Column("due", "Due"),
    Column("until", "Until"),
    Column("provider", "Provider"),
    Column("challenger", "Challenger"),
)
_FILTERS = (
    Filter("status", "Status", reads.has_status, (reads.OPEN, *DISPUTE_STATUSES[1:])),
    Filter("q", "Wallet of a party", lambda value: (Dispute.provider == value) | (Dispute.challenger == value)),
)
_VERIFIER_COLUMNS = (
    Column("name", "Verifier", Provider.name),
    Column("status", "Status"),
    Column("score", "Reliability", Provider.reliability_bps, "number"),
    Column("stake", "Stake, ZEN", STAKE_WEI, "number"),
    Column("replays", "Replays", kind="number"),
    Column("refused", "Declined", kind="number"),
    Column("lost", "Timed out", kind="number"),
    Column("rejected", "Outvoted", kind="number"),
    Column("seen", "Last seen", Provider.last_seen_at),
)


@router.get("/disputes")
def list_disputes(visit: CurrentVisit) -> HTMLResponse:
    """Return the page."""
    table = Table(visit, "disputes", _COLUMNS, "-opened", Dispute.id, _FILTERS)
    verifiers = Table(visit, "verifiers", _VERIFIER_COLUMNS, "-score", Provider.address)
    since = epoch_of(utc_now().timestamp()) - VERIFIER_EPOCHS
    with visit.services.database.reading() as session:
        due = reads.due_of(session, table.fetch(session, reads.dispute_lines()))
        nodes = verifiers.fetch(session, reads.verifier_lines())
        counts = reads.replay_counts(session, [node.address for node in nodes], since)
        rates = reads.sampling(session)
    return visit.render(
        "disputes/disputes.html",
        table=table,
        due=due,
        rates=[(rate, _chance(rate.segments, rate.sampling_bps)) for rate in rates],
        verifiers=verifiers,
        counts=counts,
        uncounted=reads.ReplayCounts(),
        days=VERIFIER_EPOCHS,
    )


@router.get("/disputes/{dispute_id}")
def show_dispute(visit: CurrentVisit, dispute_id: DisputeId) -> HTMLResponse:
    """Return the story of one dispute."""
    services = visit.services
    with services.database.reading() as session:
        story = reads.read_story(session, dispute_id, services.network.disputes.bond_wei)
    if story is None:
        raise DisputeNotFound(f"no final block contains dispute {dispute_id}", field="dispute_id")
    visit.names |= {story.dispute.provider: "provider", story.dispute.challenger: "challenger"}
    gateway = split_list(services.settings.gateway_url)[0].rstrip("/")
    return visit.render("disputes/dispute.html", story=story, words=dispute_story, gateway=gateway)


def _chance(segments: int, sampling_bps: int) -> int:
    """Return the probability in basis points that one false segment of a unit is replayed."""
    return round(detection_at_rate(segments, 1, sampling_bps) * 10_000)
