"""Server-sent events that tell open pages to load their live parts again."""

import asyncio
import json
from collections.abc import AsyncIterator

from fastapi import APIRouter, Request
from sqlalchemy import select
from sse_starlette import EventSourceResponse, ServerSentEvent

from market.platform.db.base import utc_now
from market.platform.events.models import AuditEvent
from market.platform.http.deps import services_of
from market.platform.http.services import Services
from market.platform.http.shared_result import SharedResult

router = APIRouter()
TICK_SECONDS = 3.0
_STREAM_SECONDS = 900.0  # then the browser connects again


def newest_change(services: Services) -> tuple[int, str]:
    """Return number and time of the newest audit event; (0, "") before the first."""
    newest = select(AuditEvent.id, AuditEvent.created_at).order_by(AuditEvent.id.desc()).limit(1)
    with services.database.reading() as session:
        row = session.execute(newest).one_or_none()
    return (0, "") if row is None else (row.id, row.created_at.isoformat())


_newest = SharedResult(newest_change)


@router.get("/live")
async def watch(request: Request) -> EventSourceResponse:
    """Send number and time of the newest change every few seconds."""
    stream = _ticks(services_of(request))
    return EventSourceResponse(stream, headers={"Cache-Control": "no-store"})


async def _ticks(services: Services) -> AsyncIterator[ServerSentEvent]:
    for _ in range(int(_STREAM_SECONDS / TICK_SECONDS)):
        change, changed_at = await _newest.get(services)
        tick = {"change": change, "changed_at": changed_at, "at": utc_now().isoformat()}
        yield ServerSentEvent(data=json.dumps(tick), event="tick")
        await asyncio.sleep(TICK_SECONDS)
