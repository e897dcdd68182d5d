"""Providers and verifiers: list with search, and the record of one."""

from datetime import UTC, datetime, time
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from sqlalchemy.orm import Session

from market.console import charts
from market.console.page import Audience, Page
from market.console.reads import providers as reads
from market.console.reads.governance import queued_release
from market.console.tables import Column, Filter, Table
from market.console.visits import CurrentVisit
from market.domain.lifecycle import ProviderStatus
from market.domain.network import EPOCH_SECONDS
from market.governance.schemas import OperationView
from market.platform.db.base import from_unix, utc_now
from market.providers.errors import ProviderNotFound
from market.providers.models import Provider
from market.settings import split_list

router = APIRouter()
PAGE = Page("/providers", "Providers", "Operate", Audience.STAFF, router)
FULL_BPS, PART_BPS = 9_900, 9_000
_COLUMNS = (
    Column("name", "Name", Provider.name),
    Column("address", "Wallet"),
    Column("kind", "Kind"),
    Column("status", "Status"),
    Column("tier", "Tier"),
    Column("region", "Zone"),
    Column("score", "Reliability", Provider.reliability_bps, "number"),
    Column("stake", "Stake, ZEN", reads.STAKE_WEI, "number"),
    Column("seen", "Last seen", Provider.last_seen_at),
)


@router.get("/providers")
def list_providers(visit: CurrentVisit) -> HTMLResponse:
    """Return the list."""
    tiers = {tier.id: tier.name for tier in visit.services.network.tiers}
    filters = (
        Filter("q", "Name, wallet or zone", reads.matches),
        Filter("kind", "Kind", lambda value: Provider.kind == value, ("provider", "verifier")),
        Filter("status", "Status", lambda value: Provider.status == value, tuple(ProviderStatus)),
        Filter("tier", "Tier", lambda value: Provider.tier_id == _id_of(tiers, value), tuple(tiers.values())),
    )
    table = Table(visit, "providers", _COLUMNS, "-score", Provider.address, filters)
    with visit.services.database.reading() as session:
        table.fetch(session, reads.node_lines())
    return visit.render("market/providers.html", table=table, tiers=tiers)


@router.get("/providers/{address}")
def show_provider(visit: CurrentVisit, address: str) -> HTMLResponse:
    """Return the record of one node."""
    with visit.services.database.reading() as session:
        record = reads.read_record(session, address[:42])
        if record is None:
            raise ProviderNotFound(f"{address[:42]!r} is not registered", field="address")
        release = release_of(session, visit, record.provider)
    return visit.render("market/provider.html", **record_values(visit, record, release))


def release_of(session: Session, visit: CurrentVisit, node: Provider) -> OperationView | None:
    """Return the queued release of a jailed node; None without one."""
    if node.status != ProviderStatus.JAILED:
        return None
    return queued_release(session, visit.deployment, visit.services.network, utc_now(), node.address)


def record_values(visit: CurrentVisit, record: reads.Record, release: OperationView | None) -> dict[str, Any]:
    """Return the values of a record's template."""
    visit.names[record.provider.address] = record.provider.name
    days = [(datetime.combine(day, time(), UTC), [charts.decimal_zen(wei)]) for day, wei in record.earnings.by_day]
    return {
        "record": record,
        "release": release,
        "tier": next((tier for tier in visit.services.network.tiers if tier.id == record.provider.tier_id), None),
        "calendar": [(from_unix(day.epoch * EPOCH_SECONDS), _shade(day.uptime_bps), day) for day in record.calendar],
        "pay": charts.time_series(days, ("paid",)),
        "gateway": split_list(visit.services.settings.gateway_url)[0].rstrip("/"),
    }


def _shade(uptime_bps: int | None) -> str:
    if uptime_bps is None:
        return "none"
    return "full" if uptime_bps >= FULL_BPS else "part" if uptime_bps >= PART_BPS else "low"


def _id_of(tiers: dict[int, str], name: str) -> int | None:
    return next((tier_id for tier_id, other in tiers.items() if other == name), None)
