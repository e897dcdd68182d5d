"""Server-sent events of a job."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Header, Path
from fastapi.concurrency import run_in_threadpool
from redis.exceptions import RedisError
from sse_starlette import EventSourceResponse, ServerSentEvent

from market.accounts.deps import CurrentAccount
from market.accounts.service import Principal
from market.domain.lifecycle import JobStatus
from market.jobs.access import visible_job
from market.jobs.errors import JobNotFound
from market.platform.db.redis_client import breaker_of, connect_async_redis
from market.platform.events import repository as events_repository
from market.platform.events.service import channel
from market.platform.http.deps import ServicesDep
from market.platform.http.refusals import refusals
from market.platform.http.services import Services
from market.platform.http.types import HashString

router = APIRouter(prefix="/v1", tags=["jobs"])
_LAST_ID = 2**63 - 1  # of a bigint column
_OVER = (JobStatus.SETTLED, JobStatus.REJECTED)
_POLL_SECONDS = 1.0  # longest delay of an event while Redis fails
_HEARTBEAT_SECONDS = 10
_BATCH = 200


@dataclass(frozen=True, slots=True)
class Batch:
    """Events in order. ``over``: the job has ended and no events follow."""

    events: list[ServerSentEvent]
    last_id: int
    over: bool


@router.get(
    "/jobs/{job_id}/events",
    responses={200: {"content": {"text/event-stream": {}}}, **refusals(JobNotFound)},
    response_class=EventSourceResponse,
)
async def watch_job(
    job_id: Annotated[HashString, Path(description="The job's id: 0x hex of 32 bytes.")],
    account: CurrentAccount,
    services: ServicesDep,
    last_event_id: Annotated[int, Header(ge=0, le=_LAST_ID, description="Resume after the event with this id.")] = 0,
) -> EventSourceResponse:
    """All events of your job until it is settled or rejected. Comments are heartbeats."""
    await run_in_threadpool(_next_batch, services, account, job_id, last_event_id)  # raises before the stream begins
    stream = _stream(services, account, job_id, last_event_id)
    return EventSourceResponse(stream, ping=_HEARTBEAT_SECONDS, headers={"Cache-Control": "no-store"})


async def _stream(services: Services, account: Principal, job_id: str, last_id: int) -> AsyncIterator[ServerSentEvent]:
    async with aclosing(_poll_triggers(services.settings.redis_url, job_id)) as wake_ups:
        async for _ in wake_ups:
            more = True
            while more:
                batch = await run_in_threadpool(_next_batch, services, account, job_id, last_id)
                for event in batch.events:
                    yield event
                last_id = batch.last_id
                more = len(batch.events) == _BATCH
            if batch.over:
                return


def _next_batch(services: Services, account: Principal, job_id: str, last_id: int) -> Batch:
    # Read the status before the events: once it is final, all events of the job are committed.
    with services.database.transaction() as session:
        job = visible_job(session, account, job_id)
        over = job.status in _OVER and not events_repository.has_unannounced(session, job_id)
        rows = events_repository.announced_after(session, job_id, last_id, _BATCH)
    events = [ServerSentEvent(data=json.dumps(row.data), event=row.kind, id=str(row.id)) for row in rows]
    return Batch(events, rows[-1].id if rows else last_id, over)


async def _poll_triggers(redis_url: str, job_id: str) -> AsyncGenerator[None]:
    """Yield at once, then after each event and at least every second. Redis may be unavailable."""
    redis, breaker = connect_async_redis(redis_url), breaker_of(redis_url)
    pubsub = redis.pubsub()
    subscribed = False
    try:
        while True:
            try:
                if not subscribed:
                    with breaker.attempt():
                        await pubsub.subscribe(channel(job_id))
                    subscribed = True
                    yield
                await pubsub.get_message(ignore_subscribe_messages=True, timeout=_POLL_SECONDS)
            except RedisError:
                subscribed = False
                await asyncio.sleep(_POLL_SECONDS)
            yield
    finally:
        await pubsub.aclose()  # type: ignore[no-untyped-call]
        await redis.aclose()
