"""One circuit breaker for all Redis clients of a process."""

import socket

import pytest
from kit.engines.http_servers import waiting_connections
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from starlette.testclient import TestClient

from market.app import create_app
from market.platform.breaker import Breaker
from market.platform.db.redis_client import breaker_of, connect_redis
from market.providers.liveness import acquire_wallet_lock
from market.settings import Settings


def test_silent_redis_delays_one_request_of_many(
    settings: Settings, own_logs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("market.platform.breaker._PAUSE_SECONDS", 60.0)  # a slow machine may need more than 5 s
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        app = create_app(settings.model_copy(update={"redis_url": url, "requests_per_minute_ip": 1}))
        with TestClient(app) as client:
            assert {client.get("/v1/network").status_code for _ in range(3)} == {200}
            assert all(acquire_wallet_lock(app.state.services.redis, "0x1", "a", [], 30) for _ in range(3))
        assert waiting_connections(silent) == 1


def fail(breaker: Breaker) -> None:
    with pytest.raises(RedisTimeoutError), breaker.attempt():
        raise RedisTimeoutError


def test_one_probe_ends_pause_of_all_clients(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("market.platform.breaker.monotonic", lambda: now)
    breaker, client = breaker_of(redis_url), connect_redis(redis_url)
    fail(breaker)
    for seconds in (0.0, 4.9):
        now = seconds
        with pytest.raises(RedisConnectionError, match="earlier call"):
            client.ping()
    now = 5.1
    with breaker.attempt(), pytest.raises(RedisConnectionError, match="earlier call"):
        client.ping()  # while the probe waits
    assert client.ping()
    assert connect_redis(redis_url).ping()
    fail(breaker)
    now = 10.2
    with pytest.raises(ResponseError):
        client.execute_command("NO-SUCH-COMMAND")
    assert client.ping()  # a refusal is an answer too
    client.close()
