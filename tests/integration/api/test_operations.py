"""Readiness and metrics, which untrusted peers may also ask for."""

import threading
from dataclasses import replace

import httpx
import pytest
from fastapi import FastAPI
from kit.api.clients import refusal
from kit.waiting import wait_until
from pydantic import SecretStr
from starlette.testclient import TestClient

from market.app import create_app
from market.chain.views import ChainViews
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


@pytest.fixture
def chain_views(app: FastAPI) -> SilentChain:
    chain = SilentChain()
    app.state.services = app.state.services.with_part(ChainViews, chain)
    return chain


def test_flood_of_readiness_checks_makes_one_probe(
    api: httpx.Client, chain_views: SilentChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("market.api.health._FRESH_SECONDS", 600.0)
    answers: list[int] = []
    callers = [threading.Thread(target=lambda: answers.append(api.get("/readyz").status_code)) for _ in range(60)]
    for caller in callers:
        caller.start()
    wait_until(lambda: chain_views.calls)
    try:
        assert api.get("/v1/providers", timeout=30).status_code == 200  # threads are left for it
    finally:
        chain_views.may_answer.set()
        for caller in callers:
            caller.join()
    assert answers == [503] * 60  # the indexer has not begun
    assert chain_views.calls == 1


def test_old_readiness_is_checked_again(
    api: httpx.Client, chain_views: SilentChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("market.api.health._FRESH_SECONDS", 0.0)
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
