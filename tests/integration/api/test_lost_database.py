"""Requests while the database refuses, ends or withholds connections, or does not answer."""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest
from fastapi import FastAPI
from kit.api.clients import Caller, refusal, sign_in
from sqlalchemy import text

from market.app import build_services
from market.platform.db import engine
from market.platform.db.engine import Timeouts
from market.platform.db.session import Database
from market.settings import Settings
from worker.context import build_context
from worker.tasks import webhooks

LIMITS = {
    "database_connect_seconds": 2,
    "database_statement_seconds": 0.5,
    "database_lock_seconds": 0.2,
    "database_pool_seconds": 0.1,
}


@contextmanager
def limited(app: FastAPI, settings: Settings, **changes: object) -> Iterator[Database]:
    """Give the API connections with short limits and return its database."""
    own = app.state.services
    app.state.services = build_services(settings.model_copy(update=LIMITS | changes))
    yield app.state.services.database
    app.state.services.database.dispose()
    app.state.services.redis.close()
    app.state.services = own


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
    with limited(app, settings, database_url="postgresql://zoo@127.0.0.1:1/zoo"):
        check_unavailable(call(api, caller))


def test_ended_connection_is_unavailable_once(
    api: httpx.Client, app: FastAPI, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_TRUSTED_SECONDS", 600.0)  # on a slow machine the pool would test the connection
    with app.state.services.database.reading() as session:
        pid = session.scalar(text("SELECT pg_backend_pid()"))
    with database.reading() as session:
        session.execute(text("SELECT pg_terminate_backend(:pid, 10000)"), {"pid": pid})
    check_unavailable(api.get("/v1/providers"))
    assert api.get("/v1/providers").status_code == 200


def test_exhausted_pool_is_unavailable(api: httpx.Client, app: FastAPI, settings: Settings) -> None:
    # Fifty connections take their time on a slow machine, and only the pool's limit counts here.
    with limited(app, settings, database_connect_seconds=60, database_statement_seconds=60.0) as database:
        taken = [database.engine.connect() for _ in range(50)]
        check_unavailable(api.get("/v1/providers"))
        for connection in taken:
            connection.close()
        assert api.get("/v1/providers").status_code == 200


def test_stopped_database_is_unavailable(api: httpx.Client, app: FastAPI, settings: Settings) -> None:
    with limited(app, settings) as database:
        with database.reading() as session:
            pid = session.scalar(text("SELECT pg_backend_pid()"))
        os.kill(pid, signal.SIGSTOP)
        again = threading.Timer(20, os.kill, (pid, signal.SIGCONT))
        again.start()
        check_unavailable(api.get("/v1/providers"))
        os.kill(pid, signal.SIGCONT)
        again.cancel()
        assert api.get("/v1/providers").status_code == 200


def test_silent_server_is_unavailable(api: httpx.Client, app: FastAPI, settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with limited(app, settings, database_url=f"postgresql://zoo@127.0.0.1:{port}/zoo") as database:
            end = threading.Timer(20, silent.shutdown, (socket.SHUT_RDWR,))
            end.start()
            with pytest.raises(Exception, match="timeout expired"):
                database.engine.connect()
            check_unavailable(api.get("/v1/providers"))
            end.cancel()


@pytest.mark.parametrize("process", ["api", "worker", "webhooks"])
def test_process_limits_statements_and_locks(settings: Settings, own_logs: None, process: str) -> None:
    limited_settings = settings.model_copy(update=LIMITS)
    if process == "webhooks":
        database = webhooks._database(limited_settings.database_url, Timeouts.of(limited_settings))
    else:
        database = (build_services if process == "api" else build_context)(limited_settings).database
    with database.reading() as session:
        found = [session.scalar(text(f"SHOW {name}")) for name in ("statement_timeout", "lock_timeout")]
    database.dispose()
    assert found == ["500ms", "200ms"]
