"""Requests while the database refuses, ends or withholds connections."""

from collections.abc import Callable
from dataclasses import replace

import httpx
import pytest
from fastapi import FastAPI
from kit.api.clients import Caller, refusal, sign_in
from sqlalchemy import text

from market.app import build_services
from market.platform.db.session import Database
from market.settings import Settings


def check_unavailable(answer: httpx.Response) -> None:
    refusal(answer, 503, "database-unavailable")
    assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    "call",
    [
        lambda api, caller: api.get("/v1/providers"),
        lambda api, caller: api.get("/v1/me", headers=caller.headers),
        lambda api, caller: api.post("/v1/auth/nonce", json={"address": caller.address}),
        lambda api, caller: api.post("/v1/me/keys", json={"name": "a"}, headers=caller.headers),
        lambda api, caller: api.post("/v1/leases/next", json={}, headers=caller.headers),
    ],
)
def test_refused_connection_is_unavailable(
    api: httpx.Client, app: FastAPI, settings: Settings, call: Callable[[httpx.Client, Caller], httpx.Response]
) -> None:
    caller = sign_in(api)
    own = app.state.services
    nowhere = settings.model_copy(update={"database_url": "postgresql://zoo@127.0.0.1:1/zoo"})
    app.state.services = build_services(nowhere)
    check_unavailable(call(api, caller))
    app.state.services.database.dispose()
    app.state.services.redis.close()
    app.state.services = own


def test_ended_connection_is_unavailable_once(api: httpx.Client, app: FastAPI, database: Database) -> None:
    with app.state.services.database.reading() as session:
        pid = session.scalar(text("SELECT pg_backend_pid()"))
    with database.reading() as session:
        session.execute(text("SELECT pg_terminate_backend(:pid, 10000)"), {"pid": pid})
    check_unavailable(api.get("/v1/providers"))  # within the second in which the pool trusts a connection
    assert api.get("/v1/providers").status_code == 200


def test_exhausted_pool_is_unavailable(api: httpx.Client, app: FastAPI, database_url: str) -> None:
    single = Database(database_url, pool_size=1, max_overflow=0)
    single.engine.pool._timeout = 0.1  # type: ignore[attr-defined]
    app.state.services = replace(app.state.services, database=single)
    with single.transaction() as session:
        session.execute(text("SELECT 1"))
        check_unavailable(api.get("/v1/providers"))
    assert api.get("/v1/providers").status_code == 200
    single.dispose()
