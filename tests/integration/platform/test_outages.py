"""Deadlines that pass during an outage of the market count against no node."""

import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace

import httpx
import pytest
from kit.api.clients import accepted, sign_in
from kit.api.provider_calls import beat
from kit.jobs.jobs_fixtures import World
from kit.waiting import wait_until
from redis import Redis
from sqlalchemy import select, update
from starlette.testclient import TestClient

from market.app import create_app
from market.domain.network import DEVNET
from market.platform.db.base import utc_now
from market.platform.db.session import Database, database_now
from market.platform.http.services import Services
from market.providers.benchmarks import service as benchmarks
from market.providers.models import ComponentHeartbeat, Outage, Provider, ProviderEpoch
from market.providers.outages import service as outages
from market.providers.record import repository as record_repository
from market.settings import Settings
from market.training.leases import expiry
from market.training.leases.api_liveness import ApiLivenessReporter as ApiPresence
from market.training.leases.models import Lease
from market.training.units.models import Unit
from worker.tasks import jobs, upkeep, webhooks

MINUTE = timedelta(minutes=1)


@pytest.fixture
def sweep_once(world: World, settings: Settings, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    redis = Redis.from_url(redis_url)
    context = SimpleNamespace(database=world.database, settings=settings, network=DEVNET, redis=redis)
    monkeypatch.setattr(upkeep, "context", lambda: context)
    for task in (jobs.dispatch, jobs.aggregate, jobs.validate, webhooks.deliver_webhooks):
        monkeypatch.setattr(task, "apply_async", lambda *_, **__: None)
    monkeypatch.setattr(upkeep, "announce_events", lambda: None)
    return upkeep.sweep.run  # type: ignore[no-any-return]


def _seen(world: World, part: str, ago: timedelta) -> None:
    world.call(lambda session: session.merge(ComponentHeartbeat(part=part, seen_at=utc_now() - ago)))


def _was_away(world: World, part: str, since: timedelta, until: timedelta = timedelta(0)) -> None:
    now = utc_now()
    world.add(Outage(part=part, starts_at=now - since, ends_at=now - until))


def _lost(world: World, node: str) -> int:
    return int(world.scalar(select(ProviderEpoch.lost).where(ProviderEpoch.provider == node)) or 0)


def _run_out(world: World, lease_id: str, ago: timedelta) -> None:
    world.execute(update(Lease).where(Lease.id == lease_id).values(expires_at=utc_now() - ago))


def _report(world: World) -> None:
    world.call(expiry.report_api, 30.0)


@pytest.mark.parametrize("away", [True, False])
def test_lease_expired_during_outage_continues(
    world: World, nodes: list[str], sweep_once: Callable[[], None], away: bool
) -> None:
    job_id = world.running(nodes)
    work = world.work(nodes[0])
    _seen(world, outages.API, 5 * MINUTE if away else timedelta(0))
    _run_out(world, work.lease.id, 4 * MINUTE)
    sweep_once()  # the worker was up all the time, or is up first
    _report(world)
    sweep_once()
    assert _lost(world, nodes[0]) == (0 if away else 1)
    statuses = {unit.provider: unit.status for unit in world.units(job_id)}
    assert statuses[nodes[0]] == ("leased" if away else "lost")
    if away:
        work.deliver()
        assert world.units(job_id, provider=nodes[0])[0].status == "uploaded"


def test_lease_expired_before_outage_is_lost(world: World, nodes: list[str], sweep_once: Callable[[], None]) -> None:
    world.running(nodes)
    work = world.work(nodes[0])
    _seen(world, outages.API, 5 * MINUTE)
    _run_out(world, work.lease.id, 6 * MINUTE)
    _report(world)
    sweep_once()
    assert _lost(world, nodes[0]) == 1


def test_node_silent_after_outage_loses_lease(world: World, nodes: list[str], sweep_once: Callable[[], None]) -> None:
    world.running(nodes)
    work = world.work(nodes[0])
    _seen(world, outages.API, 5 * MINUTE)
    _run_out(world, work.lease.id, MINUTE)
    _report(world)
    left = world.get(Lease, work.lease.id).expires_at - utc_now()
    assert timedelta(seconds=0) < left <= timedelta(seconds=30)
    _run_out(world, work.lease.id, timedelta(seconds=1))
    _report(world)
    sweep_once()
    assert _lost(world, nodes[0]) == 1


def test_first_call_after_outage_is_not_refused(api: httpx.Client, services: Services, world: World) -> None:
    """The database was unreachable or the host slept, so no process started again."""
    caller = sign_in(api)
    world.register(caller.address)
    world.running([caller.address])
    lease = beat(caller, services.domain, kinds=["train"])["lease"]
    _seen(world, outages.API, 5 * MINUTE)
    _run_out(world, lease["id"], 4 * MINUTE)
    services.part(ApiPresence)._reported = time.time() - 300
    body = {"token": lease["token"], "step": 1}
    accepted(caller.post(f"/v1/leases/{lease['id']}/heartbeat", json=body))


def test_api_process_reports_periodically_and_records_outage(world: World, settings: Settings) -> None:
    def seen() -> object:
        return world.call(lambda session: session.get(ComponentHeartbeat, outages.API))

    with TestClient(create_app(settings)):
        wait_until(lambda: seen() is not None)
        _seen(world, outages.API, 5 * MINUTE)
        wait_until(lambda: world.all(select(Outage)))


def test_sweep_records_long_absence_of_sweeps(world: World, sweep_once: Callable[[], None]) -> None:
    sweep_once()
    sweep_once()
    assert world.all(select(Outage)) == []
    _seen(world, outages.SWEEP, 5 * MINUTE)
    sweep_once()
    [outage] = world.all(select(Outage))
    assert 5 * MINUTE <= outage.ends_at - outage.starts_at < 15 * MINUTE


@pytest.mark.parametrize("away", [True, False])
def test_time_without_possible_uploads_does_not_count(world: World, nodes: list[str], away: bool) -> None:
    job_id = world.running(nodes)
    world.work(nodes[0]).commit()
    [unit] = world.units(job_id, provider=nodes[0])
    ago = utc_now() - 40 * MINUTE
    world.execute(update(Unit).where(Unit.id == unit.id).values(committed_at=ago))
    if away:
        _was_away(world, outages.API, 30 * MINUTE, 5 * MINUTE)
    expiry.expire_uploads(world.database, utc_now() - 30 * MINUTE)
    assert _lost(world, nodes[0]) == (0 if away else 1)


@pytest.mark.parametrize("part", [outages.API, outages.SWEEP, None])
def test_round_is_not_abandoned_for_outage_time(world: World, nodes: list[str], part: str | None) -> None:
    """Nodes were seen all along, but without a worker no vacant replica could be filled."""
    job_id = world.running(nodes)
    patience = 3 * world.settings.round_deadline_seconds
    world.start_round(job_id, ago=patience + 60)
    with world.database.transaction() as session:
        for minute in range(60):
            at = utc_now() - minute * MINUTE
            record_repository.mark_minute(session, nodes[0], int(at.timestamp()) // 3600, 1 << at.minute)
    if part is not None:
        _was_away(world, part, 10 * MINUTE, 5 * MINUTE)
    world.dispatch(job_id)
    assert world.read(job_id).status == ("failed" if part is None else "running")
    if part is not None:
        world.start_round(job_id, ago=patience + 330)
        world.dispatch(job_id)
        assert world.read(job_id).status == "failed"


@pytest.mark.parametrize("away", [True, False])
def test_benchmark_deadline_is_extended_by_outage(world: World, away: bool) -> None:
    node = world.node()
    requested = utc_now() - 4 * 60 * MINUTE
    world.change(Provider, node, rebenchmark_at=requested, rebenchmark_by=utc_now() - MINUTE)
    if away:
        _was_away(world, outages.API, 30 * MINUTE, 20 * MINUTE)
    benchmarks.demote_overdue(world.database, utc_now())
    assert world.get(Provider, node).status == ("active" if away else "demoted")
    benchmarks.demote_overdue(world.database, utc_now() + 10 * MINUTE)
    assert world.get(Provider, node).status == "demoted"


def test_outage_of_storage_spans_failed_tasks(database: Database) -> None:
    with database.transaction() as session:
        now = database_now(session)
        session.add(ComponentHeartbeat(part=outages.STORAGE, seen_at=now - 300 * MINUTE))
        session.add(Outage(part=outages.STORAGE, starts_at=now - 70 * MINUTE, ends_at=now - 30 * MINUTE))
        outages.record_storage_check(session, False, began=now - 29.5 * MINUTE)  # a long task
        session.expire_all()
        [row] = session.scalars(select(Outage))
        assert (row.starts_at, row.ends_at >= now) == (now - 70 * MINUTE, True)
        outages.record_storage_check(session, True)
        outages.record_storage_check(session, False, began=now)
        assert outages.outage_time(session, now, now + MINUTE, [outages.STORAGE]) < MINUTE
        assert len(session.scalars(select(Outage)).all()) == 2


def test_overlapping_outages_count_once_and_expire(database: Database) -> None:
    now = utc_now()

    def away(part: str, start: float, end: float) -> Outage:
        return Outage(part=part, starts_at=now + start * MINUTE, ends_at=now + end * MINUTE)

    with database.transaction() as session:
        session.add_all([away("api", 0, 10), away("sweep", 5, 12), away("api", 11, 11.5), away("api", 20, 30)])
        session.add(away("api", -60 * 24 * 31, -60 * 24 * 31 + 1))
    with database.transaction() as session:
        assert outages.outage_time(session, now, now + 60 * MINUTE) == 22 * MINUTE
        assert outages.outage_time(session, now + 8 * MINUTE, now + 25 * MINUTE) == 9 * MINUTE
        assert outages.outage_time(session, now, now + 60 * MINUTE, ["sweep"]) == 7 * MINUTE
        assert outages.outage_time(session, now + 13 * MINUTE, now + 19 * MINUTE) == timedelta(0)
        outages.delete_expired(session, now)
        assert len(session.scalars(select(Outage)).all()) == 4
