"""Readiness and metrics, which untrusted peers may also ask for."""

import socket
import threading
from dataclasses import replace

import httpx
import pytest
from fastapi import FastAPI
from kit.api.clients import refusal
from kit.engines.http_servers import waiting_connections
from kit.waiting import wait_until
from pydantic import SecretStr
from starlette.testclient import TestClient

from market.app import create_app
from market.chain.views import ChainViews, TreasuryState
from market.settings import Settings

TOKEN = "scrape-" + "a" * 16


class SilentChain:
    """A chain that answers once it may."""

    def __init__(self) -> None:
        self.calls = 0
        self.may_answer = threading.Event()

    def head_number(self) -> int:
        self.calls += 1
        assert self.may_answer.wait(60)
        return 1

    def treasury(self) -> TreasuryState:
        return TreasuryState(self.head_number(), 0, 0, ())


@pytest.fixture
def chain_views(app: FastAPI) -> SilentChain:
    chain = SilentChain()
    app.state.services = app.state.services.with_part(ChainViews, chain)
    return chain


@pytest.mark.parametrize(("path", "status"), [("/readyz", 503), ("/v1/treasury", 200)])
def test_flood_of_chain_reads_makes_one(
    api: httpx.Client, chain_views: SilentChain, monkeypatch: pytest.MonkeyPatch, path: str, status: int
) -> None:
    monkeypatch.setattr("market.platform.http.shared_result._FRESH_SECONDS", 600.0)
    answers: list[int] = []
    callers = [threading.Thread(target=lambda: answers.append(api.get(path).status_code)) for _ in range(60)]
    for caller in callers:
        caller.start()
    wait_until(lambda: chain_views.calls)
    try:
        assert api.get("/v1/providers", timeout=30).status_code == 200  # threads are left for it
    finally:
        chain_views.may_answer.set()
        for caller in callers:
            caller.join()
    assert answers == [status] * 60  # the indexer has not begun
    assert chain_views.calls == 1


def test_silent_chain_delays_one_request_of_many(
    settings: Settings, own_logs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("market.chain.views._REQUEST_SECONDS", 0.5)
    monkeypatch.setattr("market.platform.breaker._PAUSE_SECONDS", 60.0)  # a slow machine may need more than 5 s
    monkeypatch.setattr("market.platform.http.shared_result._FRESH_SECONDS", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        app = create_app(settings.model_copy(update={"rpc_url": f"http://127.0.0.1:{silent.getsockname()[1]}"}))
        with TestClient(app) as client:
            for _ in range(3):
                refusal(client.get("/v1/treasury"), 503, "chain-unavailable")
        assert waiting_connections(silent) == 1


def test_old_readiness_is_checked_again(
    api: httpx.Client, chain_views: SilentChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("market.platform.http.shared_result._FRESH_SECONDS", 0.0)
    chain_views.may_answer.set()
    for _ in range(2):
        api.get("/readyz")
    assert chain_views.calls == 2


def test_metrics_without_token_are_for_this_host(api: httpx.Client, settings: Settings) -> None:
    assert api.get("/metrics").status_code == 200
    refusal(api.get("/metrics", headers={"X-Forwarded-For": "127.0.0.1"}), 401, "not-authenticated")
    with TestClient(create_app(settings), client=("192.0.2.1", 1)) as other_host:
        refusal(other_host.get("/metrics"), 401, "not-authenticated")


def test_metrics_with_token_are_for_its_holder(api: httpx.Client, app: FastAPI, settings: Settings) -> None:
    changed = settings.model_copy(update={"metrics_token": SecretStr(TOKEN)})
    app.state.services = replace(app.state.services, settings=changed)
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
        refusal(api.get("/metrics", headers=headers), 401, "not-authenticated")
    forwarded = {"X-Forwarded-For": "192.0.2.1", "Authorization": f"Bearer {TOKEN}"}
    assert "zoo_jobs" in api.get("/metrics", headers=forwarded).text
