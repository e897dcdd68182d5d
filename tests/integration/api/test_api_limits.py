"""Rate limits, conditional requests, CORS, scopes, roles, and caps under concurrency."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial

import httpx
import pytest
from fastapi import FastAPI
from kit.api.clients import Caller, accepted, refusal, sign_in
from kit.jobs.jobs_fixtures import at_once
from sqlalchemy import func, select
from starlette.datastructures import Headers
from starlette.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from market.accounts import spending
from market.accounts.errors import SpendingCapReached
from market.accounts.models import Account, Credential, IdempotentRequest, Spending
from market.accounts.spending import Caps
from market.app import create_app
from market.platform.db.base import utc_now
from market.platform.db.session import Database
from market.platform.http.ratelimit import RateLimit, _Bucket
from market.settings import Settings
from zoo_protocol.hashing import sha256, to_hex

ZEN = 10**18


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock of the rate limit; on a slow machine requests would come back in the test."""
    now = time.time_ns() // 1000
    monkeypatch.setattr("market.platform.http.ratelimit._now", lambda: now)


@pytest.fixture
def client(settings: Settings, stopped_clock: None) -> Iterator[TestClient]:
    limits = {"requests_per_minute": 5, "requests_per_minute_ip": 8, "cors_origins": "https://app.test"}
    with TestClient(create_app(settings.model_copy(update=limits)), client=("192.0.2.1", 1)) as client:
        client.app.state.services.redis.flushdb()  # type: ignore[attr-defined]
        yield client


@pytest.fixture
def by_account(settings: Settings, stopped_clock: None) -> Iterator[TestClient]:
    with TestClient(create_app(settings.model_copy(update={"requests_per_minute": 5}))) as client:
        client.app.state.services.redis.flushdb()  # type: ignore[attr-defined]
        yield client


def test_credential_and_address_have_rate_limits(client: TestClient) -> None:
    answers = [client.get("/v1/network", headers={"Authorization": "Bearer one"}) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429]
    assert answers[0].headers["ratelimit-policy"] == '"credential";q=5;w=60, "address";q=8;w=60'
    assert answers[0].headers["ratelimit"] == '"credential";r=4;t=12'
    assert refusal(answers[5], 429, "rate-limited")["retry_after"] == int(answers[5].headers["retry-after"])
    assert int(answers[5].headers["retry-after"]) == 12
    others = [client.get("/v1/network", headers={"Authorization": "Bearer two"}).status_code for _ in range(4)]
    assert others == [200, 200, 200, 429]  # the address's eight; what was refused did not count
    assert client.get("/healthz").status_code == 200  # never limited


def test_account_keys_share_rate_from_first_request(by_account: TestClient) -> None:
    owner, other = sign_in(by_account), sign_in(by_account)
    keys = [_key(owner) for _ in range(3)]  # with the session's own requests, three of the account's five
    answers = [by_account.get("/v1/jobs", headers=key) for key in (*keys, keys[0])]
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
    left = [answer.headers["ratelimit"].split(";")[:2] for answer in answers]
    assert left == [['"account"', "r=1"], *[['"account"', "r=0"]] * 3]
    assert '"account";q=5;w=60' in answers[0].headers["ratelimit-policy"]
    for refused in answers[2:]:
        wait = refusal(refused, 429, "rate-limited")["retry_after"]
        assert wait == int(refused.headers["retry-after"]) >= 1
    assert other.get("/v1/jobs").status_code == 200  # another account has its own


def test_revoked_key_keeps_account_limits(by_account: TestClient) -> None:
    owner = sign_in(by_account)
    made = owner.post("/v1/me/keys", json={"name": "leaked"}).json()
    leaked = {"Authorization": f"Bearer {made['key']}"}
    assert by_account.get("/v1/jobs", headers=leaked).status_code == 200
    assert owner.delete(f"/v1/me/keys/{made['id']}").status_code == 204
    answer = by_account.get("/v1/jobs", headers=leaked)
    assert answer.headers["ratelimit"].startswith('"account";r=1')  # still thought its
    answer = by_account.get("/v1/jobs", headers=leaked)
    left = answer.headers["ratelimit"].split(";")[:2]
    assert (answer.status_code, left) == (401, ['"credential"', "r=3"])  # and its first
    assert owner.get("/v1/jobs").status_code == 200


@asynccontextmanager
async def _limits(settings: Settings, count: int, quota: int) -> AsyncIterator[list[RateLimit]]:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    made = [RateLimit(answer, settings.redis_url, 0, quota) for _ in range(count)]
    await made[0]._redis.flushdb()
    yield made
    for one in made:
        if one._reporting is not None:
            await one._reporting
        await one._redis.aclose()


async def _get(limit: RateLimit) -> tuple[int, int]:
    heads: list[Message] = []

    async def send(message: Message) -> None:
        heads.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "client": ("192.0.2.9", 1)}
    await limit(scope, receive, send)
    header = Headers(raw=heads[0]["headers"])["ratelimit"]
    return heads[0]["status"], int(header.split(";r=")[1].split(";")[0])


def test_low_usage_is_counted_without_redis_or_loss(settings: Settings, stopped_clock: None) -> None:
    async def ask() -> None:
        async with _limits(settings, 2, 3_200) as (first, second):
            reported: list[int] = []
            tell = first._synchronise

            async def count(buckets: Sequence[_Bucket], asked: int) -> int:
                reported.append(asked)
                return await tell(buckets, asked)

            first._synchronise = count  # type: ignore[method-assign]
            answers = [await _get(first) for _ in range(150)]
            assert {status for status, _ in answers} == {200}
            assert (answers[0][1], answers[-1][1]) == (3_199, 3_050)
            assert sum(reported) < 20  # the first, and where 200 had been let through since Redis heard of any
            assert first._reporting is not None
            await first._reporting
            # Another process knows of them; Redis's own clock may have let the first one expire.
            assert (await _get(second))[1] in (3_049, 3_050)

    asyncio.run(ask())


@pytest.mark.parametrize("processes", [1, 4])
def test_processes_share_limit_when_near_it(settings: Settings, processes: int) -> None:
    quota = 160

    async def ask() -> int:
        async with _limits(settings, processes, quota) as limits:
            answers = [await asyncio.gather(*(_get(limit) for limit in limits)) for _ in range(2 * quota // processes)]
            return sum(status == 200 for at_once in answers for status, _ in at_once)

    begun = time.monotonic()
    passed = asyncio.run(ask())
    refilled = math.ceil((time.monotonic() - begun) * quota / 60)
    assert quota <= passed <= quota + refilled + (processes - 1) * quota // 16


def test_requests_pass_unlimited_when_redis_is_down(settings: Settings) -> None:
    changes = {"requests_per_minute_ip": 1, "redis_url": "redis://127.0.0.1:1"}
    with TestClient(create_app(settings.model_copy(update=changes))) as client:
        assert [client.get("/v1/network").status_code for _ in range(3)] == [200] * 3


def test_poll_gets_304_until_change(api: httpx.Client) -> None:
    caller = sign_in(api)
    first = caller.get("/v1/organisations")
    tag = first.headers["etag"]
    for seen in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        again = caller.get("/v1/organisations", headers={"If-None-Match": seen})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    caller.post("/v1/organisations", json={"name": "Zoo"})
    changed = caller.get("/v1/organisations", headers={"If-None-Match": tag})
    assert (changed.status_code, len(changed.json())) == (200, 1)
    assert changed.headers["etag"] != tag
    assert "etag" not in api.get("/v1/nothing").headers


def test_other_origins_are_let_in_only_by_name(client: TestClient, api: httpx.Client) -> None:
    ask = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    allowed = client.options("/v1/jobs", headers={"Origin": "https://app.test", **ask})
    assert allowed.headers["access-control-allow-origin"] == "https://app.test"
    refused = client.options("/v1/jobs", headers={"Origin": "https://evil.test", **ask})
    assert "access-control-allow-origin" not in refused.headers
    assert "access-control-allow-origin" not in api.get("/v1/network", headers={"Origin": "https://app.test"}).headers


def test_key_is_limited_to_its_scopes(api: httpx.Client) -> None:
    caller = sign_in(api)
    reads = _key(caller, scopes=["jobs:read"])
    assert api.get("/v1/jobs", headers=reads).status_code == 200
    assert api.get("/v1/me", headers=reads).json()["scopes"] == ["jobs:read"]
    problem = refusal(api.post(f"/v1/jobs/0x{'0' * 64}/cancel", headers=reads), 403, "scope-missing")
    assert problem["scope"] == "jobs:write"
    refusal(api.get("/v1/webhooks", headers=reads), 403, "scope-missing")
    writes = _key(caller, scopes=["jobs:write"])
    assert api.get("/v1/jobs", headers=writes).status_code == 200  # writing includes reading
    refusal(api.post(f"/v1/jobs/0x{'0' * 64}/cancel", headers=writes), 404, "job-not-found")
    wrong = caller.post("/v1/me/keys", json={"name": "x", "scopes": ["jobs:fly"]})
    assert refusal(wrong, 422, "invalid-request")["field"] == "scopes.0"


def test_rotated_key_keeps_limits_and_temporary_old_secret(api: httpx.Client, database: Database) -> None:
    caller = sign_in(api)
    body = {"name": "ci", "scopes": ["jobs:write"], "spending": {"per_day_wei": str(ZEN)}}
    old = caller.post("/v1/me/keys", json=body).json()
    path = f"/v1/me/keys/{old['id']}/rotate"
    new = caller.post(path, json={"overlap_hours": 1}).json()
    assert (new["name"], new["scopes"], new["spending"]) == (old["name"], old["scopes"], old["spending"])
    for key in (old, new):
        assert api.get("/v1/jobs", headers={"Authorization": f"Bearer {key['key']}"}).status_code == 200
    with database.transaction() as session:
        limits = {row.limit_id for row in session.scalars(select(Credential).where(Credential.kind == "key"))}
        session.get_one(Credential, old["id"]).expires_at -= timedelta(hours=1, seconds=1)
    assert len(limits) == 1
    refusal(api.get("/v1/jobs", headers={"Authorization": f"Bearer {old['key']}"}), 401, "not-authenticated")


def test_repeated_key_creation_makes_one_key_without_secret(api: httpx.Client, database: Database) -> None:
    caller = sign_in(api)
    headers = caller.headers | {"Idempotency-Key": "key-1"}
    first = api.post("/v1/me/keys", json={"name": "ci"}, headers=headers).json()
    again = api.post("/v1/me/keys", json={"name": "ci"}, headers=headers).json()
    assert again == first | {"key": None}
    assert len(caller.get("/v1/me/keys").json()) == 1
    with database.transaction() as session:
        assert first["key"] not in str(session.scalars(select(IdempotentRequest)).one().response)


def test_roles_are_granted_by_admins_only(api: httpx.Client, app: FastAPI, database: Database) -> None:
    admin, other = sign_in(api), sign_in(api)
    path, body = f"/v1/accounts/{other.address}/roles", {"roles": ["treasury"]}
    refusal(admin.put(path, json=body), 403, "not-permitted")
    with database.transaction() as session:
        session.get_one(Account, admin.address).roles = ["admin"]
    assert admin.put(path, json=body).json()["roles"] == ["treasury"]
    assert other.get("/v1/me").json()["roles"] == ["user", "treasury"]
    refusal(api.put(path, json=body, headers=_key(admin)), 403, "session-required")
    unknown = f"/v1/accounts/0x{'1' * 40}/roles"
    refusal(admin.put(unknown, json=body), 404, "account-not-found")


def test_concurrent_requests_respect_caps_without_failure_residue(database: Database) -> None:
    with database.transaction() as session:
        day = spending.create_limit(session, Caps(per_day_wei=10 * ZEN))
        total = spending.create_limit(session, Caps(per_job_wei=ZEN, total_wei=7 * ZEN))
    both = [(day, "the organisation"), (total, "the member")]

    def submit(number: int) -> None:
        with database.transaction() as session:
            spending.reserve(session, to_hex(sha256(str(number).encode())), ZEN, both[:: -1 if number % 2 else 1])
            if number % 5 == 0:
                raise RuntimeError("the submission fails after its reservation")

    errors = at_once([lambda number=number: submit(number) for number in range(40)])
    assert sum(error is None for error in errors) == 7
    refused = [error for error in errors if isinstance(error, SpendingCapReached)]
    assert all(error.extra["cap"] == "total_wei" for error in refused)
    assert len(refused) + sum(isinstance(error, RuntimeError) for error in errors) == 33
    with database.transaction() as session:
        assert spending.usage(session, day).spent_today_wei == spending.usage(session, total).spent_total_wei == 7 * ZEN
        assert session.scalar(select(func.count()).select_from(Spending)) == 14


def test_caps_count_known_job_cost_and_reset_daily(database: Database) -> None:
    job, other, third = (to_hex(sha256(name)) for name in (b"1", b"2", b"3"))
    with database.transaction() as session:
        limit = spending.create_limit(session, Caps(per_job_wei=3 * ZEN, per_day_wei=4 * ZEN))
        limits = [(limit, "the key")]
        spending.reserve(session, job, 3 * ZEN, limits)
        with pytest.raises(SpendingCapReached) as refused:
            spending.reserve(session, other, 2 * ZEN, limits)
        assert (refused.value.extra["cap"], refused.value.extra["left_wei"]) == ("per_day_wei", str(ZEN))
        with pytest.raises(SpendingCapReached) as refused:
            spending.reserve(session, other, 3 * ZEN + 1, limits)
        assert refused.value.extra["cap"] == "per_job_wei"
        spending.set_cost(session, job, ZEN)
        spending.reserve(session, other, 3 * ZEN, limits)
        session.get_one(Spending, (other, limit)).created_at = utc_now() - timedelta(days=1)
        session.flush()
        spending.reserve(session, third, 3 * ZEN, limits)
        used = spending.usage(session, limit)
        assert (used.spent_today_wei, used.spent_total_wei) == (4 * ZEN, 7 * ZEN)


class TestOrganisations:
    def test_admins_manage_members_and_owners_manage_admins(self, api: httpx.Client) -> None:
        owner, admin, member, outsider = (sign_in(api) for _ in range(4))
        caps = {"per_day_wei": str(5 * ZEN)}
        made = accepted(owner.post("/v1/organisations", json={"name": "Zoo", "spending": caps}), 201)
        path = f"/v1/organisations/{made['id']}"
        refusal(outsider.get(path), 404, "organisation-not-found")
        assert _set(path, owner, admin, "admin").json()["role"] == "admin"
        assert _set(path, admin, member, "member").status_code == 200
        refusal(_set(path, admin, outsider, "admin"), 403, "not-permitted")
        refusal(_set(path, admin, owner, "viewer"), 403, "not-permitted")
        refusal(_set(path, member, outsider, "viewer"), 403, "not-permitted")
        refusal(member.patch(path, json={"name": "Mine"}), 403, "not-permitted")
        assert admin.patch(path, json={"name": "Z"}).json()["spending"]["per_day_wei"] == str(5 * ZEN)
        refusal(_set(path, owner, owner, "admin"), 409, "last-owner")
        refusal(owner.delete(f"{path}/members/{owner.address}"), 409, "last-owner")
        assert member.delete(f"{path}/members/{member.address}").status_code == 204  # it leaves
        refusal(admin.delete(f"{path}/members/{member.address}"), 404, "member-not-found")
        members = owner.get(path).json()["members"]
        assert [(item["address"], item["role"]) for item in members] == [
            (owner.address, "owner"),
            (admin.address, "admin"),
        ]

    def test_concurrent_owner_departures_leave_one_owner(self, api: httpx.Client) -> None:
        owners = [sign_in(api) for _ in range(2)]
        made = owners[0].post("/v1/organisations", json={"name": "Z"}).json()
        path = f"/v1/organisations/{made['id']}"
        _set(path, owners[0], owners[1], "owner")
        answers: list[int] = []

        def leave(caller: Caller) -> None:
            answers.append(caller.delete(f"{path}/members/{caller.address}").status_code)

        assert at_once([partial(leave, caller) for caller in owners]) == [None] * 2
        assert sorted(answers) == [204, 409]


def _set(path: str, actor: Caller, subject: Caller, role: str) -> httpx.Response:
    return actor.put(f"{path}/members/{subject.address}", json={"role": role})


def _key(caller: Caller, **options: object) -> dict[str, str]:
    made = accepted(caller.post("/v1/me/keys", json={"name": "key", **options}), 201)
    return {"Authorization": f"Bearer {made['key']}"}
