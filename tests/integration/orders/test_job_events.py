"""A job's events over SSE: in order, resumable, woken early, and ended with the job."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import httpx
import pytest
from kit.api.clients import Caller, refusal, sign_in
from kit.jobs.jobs_fixtures import World
from kit.measures import statements
from kit.records import Records
from kit.waiting import wait_until
from redis import Redis
from sqlalchemy import text

from market.accounts.models import Account
from market.domain.lifecycle import JobStatus
from market.jobs.models import Job
from market.platform.db.base import utc_now
from market.platform.db.redis_client import connect_redis
from market.platform.db.session import Database
from market.platform.events import repository as events_repository
from market.platform.events.service import announce, delete_old_steps, emit
from market.platform.storage.client import Storage
from market.settings import Settings

FOREVER = 30  # seconds, for what ought to happen at once


@dataclass(frozen=True)
class Event:
    id: int
    kind: str
    data: object


def read_events(response: httpx.Response) -> Iterator[Event]:
    fields: dict[str, str] = {}
    for line in response.iter_lines():
        if not line and fields:
            yield Event(int(fields["id"]), fields["event"], json.loads(fields["data"]))
            fields = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value


class Watched(Records):
    def __init__(self, world: World, payer: Caller, redis_url: str) -> None:
        self.database: Database = world.database
        self.payer = payer
        self.redis = Redis.from_url(redis_url)
        self.id = world.job()
        with self.database.transaction() as session:
            session.get_one(Job, self.id).payer = payer.address
            session.execute(text("DELETE FROM job_events"))

    @property
    def path(self) -> str:
        return f"/v1/jobs/{self.id}/events"

    def happens(self, *numbers: int) -> None:
        for number in numbers:
            self.call(emit, self.id, "step", {"n": number})
        announce(self.database, self.redis, lambda session, events: None)

    def ends(self, status: JobStatus) -> None:
        with self.database.transaction() as session:
            session.get_one(Job, self.id).status = status
            emit(session, self.id, "status", {"status": status})


@pytest.fixture
def job(settings: Settings, api: httpx.Client, redis_url: str) -> Watched:
    world = World(settings.database_url, Storage(settings.ipfs_api), settings)
    return Watched(world, sign_in(api), redis_url)


def numbers(events: list[Event]) -> list[object]:
    return [event.data["n"] for event in events if isinstance(event.data, dict) and "n" in event.data]


@pytest.mark.parametrize("status", [JobStatus.SETTLED, JobStatus.REJECTED])
def test_events_arrive_in_order_until_job_ends(api: httpx.Client, job: Watched, status: JobStatus) -> None:
    job.happens(1, 2)
    with api.stream("GET", job.path, headers=job.payer.headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        events = read_events(response)
        seen = [next(events), next(events)]
        job.happens(3)
        seen.append(next(events))
        job.ends(status)
        job.happens()
        seen += events  # the stream ends by itself
    assert numbers(seen) == [1, 2, 3]
    assert seen[-1].data == {"status": status}


def test_reader_resumes_after_its_last_event(api: httpx.Client, job: Watched) -> None:
    job.happens(1, 2, 3)
    job.ends(JobStatus.SETTLED)
    job.happens()
    with api.stream("GET", job.path, headers=job.payer.headers) as response:
        everything = list(read_events(response))
    resumed = job.payer.headers | {"Last-Event-ID": str(everything[1].id)}
    with api.stream("GET", job.path, headers=resumed) as response:
        assert list(read_events(response)) == everything[2:]
    foreign = job.payer.headers | {"Last-Event-ID": "999999"}
    with api.stream("GET", job.path, headers=foreign) as response:
        assert list(read_events(response)) == everything


@pytest.mark.parametrize("last", ["-1", "x", str(2**63)])
def test_invalid_event_id_is_refused_with_header_name(job: Watched, last: str) -> None:
    answer = job.payer.get(job.path, headers={"Last-Event-ID": last})
    assert refusal(answer, 422, "invalid-request")["field"] == "header.last-event-id"


def test_pruning_old_steps_does_not_affect_current_readers(api: httpx.Client, job: Watched) -> None:
    with api.stream("GET", job.path, headers=job.payer.headers) as response:
        events = read_events(response)
        job.happens(1, 2, 3)
        seen = [next(events) for _ in range(3)]
        with job.database.transaction() as session:
            delete_old_steps(session, utc_now() + timedelta(hours=23))
            assert session.scalar(text("SELECT count(*) FROM job_events")) == 3
            delete_old_steps(session, utc_now() + timedelta(hours=25))
            assert session.scalar(text("SELECT count(*) FROM job_events")) == 1
        job.happens(4)
        job.ends(JobStatus.SETTLED)
        job.happens()
        seen += events
    assert numbers(seen) == [1, 2, 3, 4]


def test_events_after_id_are_read_by_index(job: Watched) -> None:
    """A job of weeks has millions of events, and each of its readers asks every second."""
    with job.database.transaction() as session:
        session.execute(
            text(
                "INSERT INTO job_events (job_id, kind, data, announced_at) SELECT :job_id, 'unit', '{}', "
                "now() + n * interval '1 millisecond' FROM generate_series(1, 20000) n"
            ),
            {"job_id": job.id},
        )
        last = session.scalar(text("SELECT max(id) FROM job_events")) - 10
        session.execute(text("ANALYZE job_events"))
        with statements(job.database) as seen:
            assert len(events_repository.announced_after(session, job.id, last, 200)) == 10
        plans = [
            "\n".join(session.connection().exec_driver_sql(f"EXPLAIN {statement}", parameters).scalars())
            for statement, parameters in seen
            if "ORDER BY" in statement
        ]
    plan = "\n".join(plans)
    assert "ix_job_events_job_id_announced_at_id" in plan
    assert "Sort" not in plan


def test_late_committed_event_is_not_skipped(api: httpx.Client, job: Watched) -> None:
    written, commit = threading.Event(), threading.Event()

    def slow() -> None:
        with job.database.transaction() as session:
            emit(session, job.id, "step", {"n": 1})
            session.flush()
            written.set()
            assert commit.wait(FOREVER)

    writer = threading.Thread(target=slow)
    writer.start()
    assert written.wait(FOREVER)
    job.happens(2)  # a higher id becomes visible first
    with api.stream("GET", job.path, headers=job.payer.headers) as response:
        events = read_events(response)
        seen = [next(events)]
        commit.set()
        writer.join(FOREVER)
        job.happens()
        seen.append(next(events))
    assert numbers(seen) == [2, 1]


def test_events_arrive_when_redis_is_down(api: httpx.Client, job: Watched) -> None:
    unreachable = connect_redis("redis://127.0.0.1:1")
    with api.stream("GET", job.path, headers=job.payer.headers) as response:
        events = read_events(response)
        job.call(emit, job.id, "step", {"n": 1})
        assert announce(job.database, unreachable, lambda session, events: None) == 1
        assert next(events).data == {"n": 1}


def test_only_payer_and_admins_watch_job(api: httpx.Client, job: Watched) -> None:
    refusal(sign_in(api).get(job.path), 404, "job-not-found")
    refusal(api.get(job.path), 401, "not-authenticated")
    refusal(job.payer.get("/v1/jobs/0x" + "00" * 32 + "/events"), 404, "job-not-found")
    admin = sign_in(api)
    job.change(Account, admin.address, roles=["admin"])
    job.ends(JobStatus.SETTLED)
    job.happens()
    with api.stream("GET", job.path, headers=admin.headers) as response:
        assert [event.kind for event in read_events(response)] == ["status"]


def test_waiting_reader_holds_no_connection(api: httpx.Client, job: Watched) -> None:
    job.happens(1)
    with api.stream("GET", job.path, headers=job.payer.headers) as response:
        next(read_events(response))
        busy = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'"
        # A look at the outbox takes a moment; a session that is held would never be let go.
        wait_until(lambda: job.scalar(text(busy)) == 0)
