"""Numbers of database and chain requests; saving some of them loses nothing."""

import asyncio
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from kit.api.clients import Caller, refusal, sign_in
from kit.api.submission_fixtures import Body, app_on_chain, job_body, sign_job, stored_dataset  # noqa: F401  (fixtures)
from kit.errors import raising
from kit.jobs.jobs_fixtures import ZEN, FakeChain, World, at_once
from kit.measures import statements
from kit.waiting import delay, wait_until
from sqlalchemy import func, literal, select, update
from sqlalchemy.exc import IntegrityError

from market.accounts import service as accounts
from market.accounts.deps import Callers
from market.accounts.models import Credential
from market.accounts.service import Principal
from market.chain.contracts.codec import Deployment, encode_call
from market.chain.models import TxIntent
from market.chain.views import ChainViews, Funds
from market.domain.lifecycle import IntentStatus
from market.jobs import repository as jobs_repository
from market.jobs.models import Job
from market.orders import submission
from market.platform.db.base import utc_now
from market.platform.db.bulk_insert import insert_together
from market.platform.db.prepared import Prepared
from market.platform.db.session import Database, enqueue_after_commit
from market.platform.db.task_queue import TaskQueue
from market.platform.events.models import JobEventRow
from market.platform.http.services import Services
from market.providers.models import SignerNonce
from market.training.leases import service as leases
from market.training.leases.long_poll import LOOK_SECONDS, LeaseWaiters
from market.training.leases.schemas import LeaseKind


@dataclass
class StaleChain(FakeChain):
    remembered: Funds = field(default_factory=lambda: Funds(0, 0))

    def funds(self, address: str, max_age_seconds: float = 0.0) -> Funds:
        return self.remembered if max_age_seconds else super().funds(address)


@pytest.fixture
def chain() -> StaleChain:
    return StaleChain()


@pytest.fixture
def payer(api: httpx.Client, chain: StaleChain) -> Caller:
    caller = sign_in(api)
    chain.balances[caller.address] = 100 * ZEN
    chain.remembered = Funds(100 * ZEN, 0)
    return caller


def _counts(database: Database) -> list[int]:
    with database.reading() as session:
        tables = (SignerNonce, Job, JobEventRow, TxIntent)
        return [session.scalar(select(func.count()).select_from(table)) or 0 for table in tables]


def test_uncapped_submission_takes_one_statement_for_known_caller(
    services: Services, payer: Caller, body: Body
) -> None:
    first, second = sign_job(payer, body), sign_job(payer, body)
    assert payer.post("/v1/jobs", json=first).status_code == 201
    with statements(services.database) as seen:
        assert payer.post("/v1/jobs", json=second).status_code == 201
    assert len(seen) == 1
    assert _counts(services.database) == [2, 2, 2, 2]


@pytest.mark.parametrize("ended", ["revoked_at", "expires_at"])
@pytest.mark.parametrize("request_is", ["right", "wrong", "wrongly signed", "repeated"])
def test_cached_caller_with_ended_credential_is_refused_first(
    api: httpx.Client, services: Services, payer: Caller, body: Body, ended: str, request_is: str
) -> None:
    first, second = sign_job(payer, body), sign_job(payer, body)
    headers = payer.headers | {"Idempotency-Key": "k"}
    assert api.post("/v1/jobs", json=first, headers=headers).status_code == 201
    with services.database.transaction() as session:  # as another process does
        session.execute(update(Credential).where(Credential.address == payer.address).values({ended: utc_now()}))
    again: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
        "right": (second, payer.headers),
        "wrong": (second | {"nodes": 0}, payer.headers),
        "wrongly signed": (second | {"order_signature": first["order_signature"]}, payer.headers),
        "repeated": (first, headers),
    }
    content, headers = again[request_is]
    with statements(services.database) as seen:
        refusal(api.post("/v1/jobs", json=content, headers=headers), 401, "not-authenticated")
    assert sum("INSERT INTO jobs" in statement for statement, _ in seen) == (request_is == "right")
    assert _counts(services.database) == [1, 1, 1, 1]


def test_replayed_submission_writes_nothing(services: Services, payer: Caller, body: Body) -> None:
    signed = sign_job(payer, body)
    codes = [payer.post("/v1/jobs", json=signed).status_code for _ in range(3)]
    assert codes == [201, 409, 409]
    assert _counts(services.database) == [1, 1, 1, 1]


def test_concurrent_equal_submissions_write_one_job(
    api: httpx.Client, services: Services, payer: Caller, body: Body
) -> None:
    signed = sign_job(payer, body)
    codes: list[int] = []

    def submit() -> None:
        codes.append(httpx.post(f"{api.base_url}/v1/jobs", json=signed, headers=payer.headers).status_code)

    assert at_once([submit] * 8) == [None] * 8
    assert sorted(codes) == [201] + [409] * 7
    assert _counts(services.database) == [1, 1, 1, 1]


def test_job_read_takes_two_statements_after_caller_lookup(services: Services, payer: Caller, body: Body) -> None:
    job = payer.post("/v1/jobs", json=sign_job(payer, body)).json()
    with statements(services.database) as seen:
        assert payer.get(f"/v1/jobs/{job['id']}").json() == job
    assert len(seen) == 3


def test_concurrent_caller_lookups_are_batched_and_fresh(api: httpx.Client, services: Services) -> None:
    secrets = [sign_in(api).headers["Authorization"].removeprefix("Bearer ") for _ in range(3)]

    async def find() -> list[Principal | None]:
        callers = Callers(services.database, ())
        first = await callers.find(secrets[0])
        assert first is not None
        with services.database.transaction() as session:
            accounts.sign_out(session, first)
        return await asyncio.gather(*(callers.find(secret) for secret in [*secrets, "zcs_unknown"]))

    with statements(services.database) as seen:
        found = asyncio.run(find())
    assert [principal is not None for principal in found] == [False, True, True, False]
    assert sum("FROM credentials" in statement for statement, _ in seen) == 2


def test_failed_lookup_fails_only_its_own_requests(database: Database) -> None:
    class Failing(Callers):
        broken = True

        def _look_up(self, secrets: Collection[str]) -> dict[str, Principal]:
            if self.broken:
                raise OSError("no database")
            return super()._look_up(secrets)

    async def find() -> None:
        callers = Failing(database, ())
        failures = await asyncio.gather(callers.find("a"), callers.find("b"), return_exceptions=True)
        assert [type(failure) for failure in failures] == [OSError, OSError]
        callers.broken = False
        assert await callers.find("a") is None

    asyncio.run(find())


@pytest.mark.parametrize("remembered", [Funds(0, 0), Funds(100 * ZEN, 7)])
def test_stale_chain_view_refuses_no_submission(
    chain: StaleChain, payer: Caller, body: Body, remembered: Funds
) -> None:
    chain.remembered = remembered
    assert payer.post("/v1/jobs", json=sign_job(payer, body)).status_code == 201


def test_job_ends_with_reason_when_funds_vanish(
    services: Services, chain: StaleChain, payer: Caller, body: Body
) -> None:
    signed = sign_job(payer, body)
    chain.balances[payer.address] = 0  # after the view that is remembered
    job_id = payer.post("/v1/jobs", json=signed).json()["id"]
    with services.database.transaction() as session:
        intent = session.scalars(select(TxIntent)).one()
        intent.status, intent.detail = IntentStatus.REVERTED, "InsufficientBalance(needed=1)"  # says the escrow
        submission.on_open_intent(session, intent)
    job = payer.get(f"/v1/jobs/{job_id}").json()
    assert (job["status"], job["reason"]) == ("rejected", "insufficient_balance")


class _CountingClient:
    def __init__(self) -> None:
        self.batches = 0

    def call(self, to: str, data: bytes, *, block: str) -> bytes:
        self.batches += 1
        assert data == encode_call("JobEscrow", "balances", ["0x" + "11" * 20])
        return (5).to_bytes(32) + self.batches.to_bytes(32)


def test_funds_are_read_in_one_bounded_age_call(services: Services) -> None:
    client = _CountingClient()
    views = ChainViews(client, services.part(Deployment))  # type: ignore[arg-type]
    address = "0x" + "11" * 20
    assert views.funds(address, 60) == views.funds(address, 60) == Funds(5, 1)
    assert views.funds(address) == Funds(5, 2)
    assert views.funds(address, 60) == Funds(5, 2)
    assert client.batches == 2


def test_rows_are_written_together_or_not_at_all(database: Database) -> None:
    def write(nonce: int) -> bool:
        with database.single_statement() as session:
            event_row = JobEventRow(job_id="0x" + "22" * 32, kind="status", data={"nonce": nonce})
            written = insert_together(session, SignerNonce(signer="0x1", nonce=nonce, used_for="0x2"), event_row)
            assert not written or event_row.created_at is not None
            return written

    assert [write(1), write(1), write(2)] == [True, False, True]
    with database.reading() as session:
        assert [row.data["nonce"] for row in session.scalars(select(JobEventRow).order_by(JobEventRow.id))] == [1, 2]


def test_readable_job_equals_row_outside_session(world: World) -> None:
    job_id = world.job(nodes=2)
    with world.database.transaction() as session:
        copy, row = jobs_repository.job_to_read(session, job_id), jobs_repository.job(session, job_id)
        assert copy is not None
        assert row is not None
        names = Job.__table__.columns.keys()
        assert [(name, getattr(copy, name)) for name in names] == [(name, getattr(row, name)) for name in names]
        assert [type(getattr(copy, name)) for name in names] == [type(getattr(row, name)) for name in names]
        assert copy not in session
        assert jobs_repository.job_to_read(session, "0x" + "00" * 32) is None


def test_single_statement_transaction_refuses_second_statement(database: Database) -> None:
    prepared = Prepared(select(literal(2)))
    with database.single_statement() as unit:
        assert prepared.rows(unit, {}) == [(2,)]
        with pytest.raises(RuntimeError):
            prepared.rows(unit, {})


def test_single_statement_transaction_wakes_workers_only_on_success(database: Database) -> None:
    woken: list[str] = []
    url = database.engine.url.render_as_string(hide_password=False)
    waking = Database(url, enqueue=lambda task, _: woken.append(task))

    def fail() -> None:
        with waking.single_statement() as unit:
            enqueue_after_commit(unit, "never")
            unit.connection().exec_driver_sql("INSERT INTO job_events (job_id) VALUES (NULL)")

    with pytest.raises(IntegrityError):
        fail()
    with waking.single_statement() as unit:
        enqueue_after_commit(unit, "once")
        assert woken == []
        Prepared(select(literal(2))).rows(unit, {})
    waking.dispose()
    assert woken == ["once"]


def test_broken_idle_connections_are_replaced(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with database.reading() as session:
        process = session.scalar(select(func.pg_backend_pid()))
    with Database(database.engine.url.render_as_string(hide_password=False)).reading() as other:
        other.execute(select(func.pg_terminate_backend(process, 10_000)))  # and wait for its end
    monkeypatch.setattr("market.platform.db.engine._TRUSTED_SECONDS", 0.0)
    with database.reading() as session:
        assert session.scalar(select(func.pg_backend_pid())) != process


def test_waiting_nodes_are_queried_together_and_selectively_woken(world: World, nodes: list[str]) -> None:
    async def wait() -> list[float]:
        offers = LeaseWaiters(world.database)
        begun = time.monotonic()

        async def one(node: str, kind: LeaseKind, seconds: float = 5.0) -> float:
            await offers.wait(node, [kind], seconds)
            return time.monotonic() - begun

        waiting = [asyncio.create_task(one(nodes[0], LeaseKind.PIN, 60.0))]
        waiting += [asyncio.create_task(one(node, LeaseKind.PIN)) for node in nodes[1:]]
        waiting.append(asyncio.create_task(one(nodes[0], LeaseKind.TRAIN)))
        await asyncio.to_thread(delay, 0.5)
        await asyncio.to_thread(_offer, world, nodes[0])
        return await asyncio.gather(*waiting)

    with statements(world.database) as seen:
        taken = asyncio.run(wait())
    assert taken[0] < 59
    assert min(taken[1:]) >= 4.9
    looks = sum("FROM leases" in statement for statement, _ in seen)
    assert looks <= max(taken) / LOOK_SECONDS + 1  # not for each node


def _offer(world: World, node: str) -> None:
    job_id = world.job(nodes=1)
    world.call(leases.create_lease, kind=LeaseKind.PIN, holder=node, job_id=job_id, task={}, seconds=60)


def test_equal_wakes_are_merged_and_survive_failures() -> None:
    sent: list[str] = []
    go = threading.Event()

    def send(task: str, arguments: tuple[str, ...]) -> None:
        go.wait()
        sent.append(task)
        if task == "first":
            raise RuntimeError("no broker")

    outbox = TaskQueue(send)
    outbox("first", ())
    delay(0.05)  # its sending has begun
    for _ in range(50):
        outbox("second", ())
        outbox("third", ("x",))
    go.set()
    wait_until(lambda: len(sent) == 3)
    assert sent == ["first", "second", "third"]


def test_failed_thread_start_keeps_later_wakes() -> None:
    sent: list[str] = []
    outbox = TaskQueue(lambda task, _arguments: sent.append(task))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", raising(RuntimeError("can't start new thread")))
        outbox("first", ())
    assert not sent
    outbox("second", ())
    wait_until(lambda: sent == ["first", "second"])
