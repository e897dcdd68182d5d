"""Indexer, signers, queues and parameters of the market."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from redis.exceptions import RedisError

from market.chain.repository import cursor
from market.console.chain_facts import ChainFactsReader
from market.console.page import Audience, Page
from market.console.visits import CurrentVisit
from market.ledger.reconciliation import last_reconciliation
from market.payments.rewards import service as rewards
from market.payments.settlement.service import void_batches
from market.platform.db.base import utc_now
from market.platform.db.task_queue import WEBHOOKS_QUEUE
from market.platform.http.services import Services
from market.verification.windows.omissions import outstanding

router = APIRouter()
PAGE = Page("/system", "Chain and queues", "System", Audience.STAFF, router)
_QUEUES = ("celery", WEBHOOKS_QUEUE)


@router.get("/system")
def show_system(visit: CurrentVisit) -> HTMLResponse:
    """Return the page. Facts of the chain are those of an earlier read."""
    reader, services = visit.services.part(ChainFactsReader), visit.services
    with services.database.reading() as session:
        values: dict[str, object] = {
            "cursor": cursor(session),
            "windows": outstanding(session),
            "void_batches": void_batches(session),
            "void_posts": rewards.void_posts(session),
            "unposted": rewards.unposted_epochs(session, utc_now()),
            "last": last_reconciliation(session),
        }
    visit.later.add_task(reader.refresh, services)
    parameters = list(_flat("", services.network))
    values |= {"facts": reader.latest, "queues": _queues(services), "parameters": parameters}
    return visit.render("operate/system.html", 200, **values)


def _queues(services: Services) -> dict[str, int] | None:
    """Return the number of tasks in each queue; None if Redis does not answer."""
    try:
        return {name: int(services.redis.llen(name)) for name in _QUEUES}  # type: ignore[arg-type]
    except RedisError:
        return None


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield (name, kind, value) of all parameters; the kind selects the form of the value."""
    for one in fields(value):
        name, found = f"{prefix}{one.name}", getattr(value, one.name)
        rows = _rows(found)
        if is_dataclass(found):
            yield from _flat(f"{name}.", found)
        elif rows is None:
            yield name, _kind(one.name), found
        for key, row in rows or ():
            if is_dataclass(row):
                yield from _flat(f"{name}.{key}.", row)
            else:
                yield f"{name}.{key}", _kind(one.name), row


def _rows(value: Any) -> list[tuple[str, Any]] | None:
    """Return the named or numbered members of a tuple; None for another value."""
    if not isinstance(value, tuple):
        return None
    if all(isinstance(row, tuple) for row in value):
        return [(str(name), row) for name, row in value]
    return [(str(getattr(row, "name", number)), row) for number, row in enumerate(value, 1)]


def _kind(name: str) -> str:
    if name.startswith("emission"):
        return "wei"
    return next((kind for kind in ("bps", "wei", "seconds") if name.endswith(f"_{kind}")), "")
