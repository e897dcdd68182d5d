"""Webhooks: what is sent and how it is signed, retries, replays, and where they never go."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, get_args

import httpx
import pytest
from fastapi import FastAPI
from kit.api.clients import Caller, refusal, sign_in
from kit.engines.http_servers import Handler, serving
from kit.jobs.jobs_fixtures import World, at_once
from sqlalchemy import update
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from market.platform.db.base import utc_now
from market.platform.events.announcer import announce
from market.webhooks import service as webhooks
from market.webhooks.http_delivery import is_public, send, sign
from market.webhooks.models import WebhookDelivery, WebhookEndpoint
from market.webhooks.router import EventKind


@dataclass
class Receiver:
    """HTTP server that records its requests."""

    status: int = 204
    location: str | None = None
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()

    class Hook(Handler):
        def do_POST(self) -> None:
            receiver.got.append(({name.lower(): value for name, value in self.headers.items()}, self.body()))
            self.send_response(receiver.status)
            if receiver.location:
                self.send_header("Location", receiver.location)
            self.end_headers()

    with serving(Hook) as server:
        receiver.port = server.server_port
        yield receiver


@pytest.fixture
def app(app: FastAPI) -> Iterator[FastAPI]:
    settings = app.state.services.settings
    settings.webhooks_to_private_addresses = True
    yield app
    settings.webhooks_to_private_addresses = False


@pytest.fixture
def payer(api: httpx.Client, world: World) -> tuple[Caller, str]:
    job_id = world.job()
    return sign_in(api, world.wallets[world.read(job_id).payer]), job_id


def _create(api: httpx.Client, caller: Caller, url: str, **options: Any) -> dict[str, Any]:
    answer = api.post("/v1/webhooks", json={"url": url, **options}, headers=caller.headers)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def _announce(app: FastAPI, world: World) -> None:
    announce(world.database, app.state.services.redis, webhooks.fan_out)


def _deliver(world: World) -> int:
    return webhooks.deliver_due(world.database, private=True)


def _deliveries(api: httpx.Client, caller: Caller, made: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get(f"/v1/webhooks/{made['id']}/deliveries", headers=caller.headers).json()[
        "items"
    ]
    return found


def test_webhook_may_subscribe_to_all_events(api: httpx.Client, payer: tuple[Caller, str], receiver: Receiver) -> None:
    everything = sorted(get_args(EventKind))
    assert _create(api, payer[0], receiver.url, events=everything)["events"] == everything


def test_events_arrive_once_and_verify_by_reference_library(
    api: httpx.Client, app: FastAPI, world: World, payer: tuple[Caller, str], receiver: Receiver
) -> None:
    caller, job_id = payer
    made = _create(api, caller, receiver.url, events=["status"])
    outsider = sign_in(api)
    _create(api, outsider, receiver.url, events=["status"])  # it has no job, so it hears nothing
    _announce(app, world)
    _announce(app, world)
    sent = _deliver(world)
    assert (sent, _deliver(world), len(receiver.got)) == (2, 0, 2)  # funded, matching
    for headers, body in receiver.got:
        payload = Webhook(made["secret"]).verify(body, headers)
        assert payload["type"] == "job.status"
        assert payload["data"]["job_id"] == job_id
        with pytest.raises(WebhookVerificationError):
            Webhook(made["secret"]).verify(body + b" ", headers)
    ids = [headers["webhook-id"] for headers, _ in receiver.got]
    assert len(set(ids)) == 2
    rows = _deliveries(api, caller, made)
    assert {row["message_id"] for row in rows} == set(ids)
    assert {row["status"] for row in rows} == {"delivered"}
    assert "secret" not in api.get(f"/v1/webhooks/{made['id']}", headers=caller.headers).json()
    refusal(api.get(f"/v1/webhooks/{made['id']}", headers=outsider.headers), 404, "webhook-not-found")


def test_failed_delivery_is_retried_and_can_be_replayed(
    api: httpx.Client, app: FastAPI, world: World, payer: tuple[Caller, str], receiver: Receiver
) -> None:
    caller, _ = payer
    made = _create(api, caller, receiver.url, events=["status"])
    _announce(app, world)
    receiver.status = 500
    first = _deliver(world)
    assert _deliver(world) == 0  # not before its time
    failed = _deliveries(api, caller, made)[0]
    assert (failed["status"], failed["attempts"], failed["response_status"]) == ("pending", 1, 500)
    for attempt in range(2, len(webhooks.RETRY_AFTER) + 2):
        _pass_time(world)
        assert _deliver(world) == first
        assert _deliveries(api, caller, made)[0]["attempts"] == attempt
    assert _deliveries(api, caller, made)[0]["status"] == "failed"
    _pass_time(world)
    assert _deliver(world) == 0
    receiver.status = 200
    path = f"/v1/webhooks/{made['id']}/deliveries/{failed['id']}/replay"
    assert api.post(path, headers=caller.headers).json()["status"] == "pending"
    assert _deliver(world) == 1
    assert receiver.got[-1][0]["webhook-id"] == failed["message_id"]  # the same message
    refusal(api.post(path.replace(f"/{failed['id']}/", "/999999/"), headers=caller.headers), 404, "delivery-not-found")


def _pass_time(world: World) -> None:
    world.execute(update(WebhookDelivery).values(next_attempt_at=utc_now() - timedelta(seconds=1)))


def test_workers_at_once_send_each_message_once(
    api: httpx.Client, app: FastAPI, world: World, payer: tuple[Caller, str], receiver: Receiver
) -> None:
    caller, _ = payer
    for _ in range(4):
        _create(api, caller, receiver.url, events=["status"])
    _announce(app, world)
    assert at_once([lambda: _deliver(world) for _ in range(3)]) == [None] * 3
    ids = [headers["webhook-id"] for headers, _ in receiver.got]
    assert len(ids) == len(set(ids)) == 8


def test_old_and_new_secret_verify_after_rotation(
    api: httpx.Client, app: FastAPI, world: World, payer: tuple[Caller, str], receiver: Receiver
) -> None:
    caller, _ = payer
    made = _create(api, caller, receiver.url, events=["status"])
    path = f"/v1/webhooks/{made['id']}/rotate-secret"
    rotated = api.post(path, json={"overlap_hours": 1}, headers=caller.headers).json()
    _announce(app, world)
    _deliver(world)
    headers, body = receiver.got[-1]
    for secret in (made["secret"], rotated["secret"]):
        Webhook(secret).verify(body, headers)
    api.post(path, json={"overlap_hours": 0}, headers=caller.headers)
    world.execute(update(WebhookDelivery).values(status="pending", next_attempt_at=utc_now()))
    _deliver(world)
    headers, body = receiver.got[-1]
    with pytest.raises(WebhookVerificationError):
        Webhook(rotated["secret"]).verify(body, headers)


def test_gone_receiver_is_disabled_and_redirect_fails(
    api: httpx.Client, app: FastAPI, world: World, payer: tuple[Caller, str], receiver: Receiver
) -> None:
    caller, _ = payer
    made = _create(api, caller, receiver.url, events=["status"])
    _announce(app, world)
    receiver.status, receiver.location = 307, receiver.url
    before = _deliver(world)
    assert len(receiver.got) == before  # nothing was followed
    assert _deliveries(api, caller, made)[0]["response_status"] == 307
    receiver.status, receiver.location = 410, None
    _pass_time(world)
    _deliver(world)
    assert api.get(f"/v1/webhooks/{made['id']}", headers=caller.headers).json()["enabled"] is False
    on = api.patch(f"/v1/webhooks/{made['id']}", json={"enabled": True}, headers=caller.headers).json()
    assert on["enabled"] is True
    assert api.delete(f"/v1/webhooks/{made['id']}", headers=caller.headers).status_code == 204
    assert api.get("/v1/webhooks", headers=caller.headers).json() == []


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://10.1.2.3/",
        "https://169.254.169.254/latest/meta-data",
        "https://0.0.0.0/",
        "https://2130706433/",
        "https://user:password@93.184.215.14/",
        "ftp://93.184.215.14/",
        "https:///path",
        "nonsense",
        "https://localhost/",
        "https://[::1",
    ],
)
def test_internal_urls_are_refused(api: httpx.Client, app: FastAPI, url: str) -> None:
    app.state.services.settings.webhooks_to_private_addresses = False
    caller = sign_in(api)
    answer = api.post("/v1/webhooks", json={"url": url}, headers=caller.headers)
    assert refusal(answer, 422, "webhook-address-refused")["field"] == "url"


def test_address_change_after_check_is_refused(receiver: Receiver) -> None:
    """Each attempt checks the address and connects to that one."""
    message: dict[str, Any] = {"signing": ["whsec_AAAA"], "message_id": "msg_1", "timestamp": 1, "payload": b"{}"}
    asked: list[str] = []

    def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) > 1 else ["203.0.113.1"]  # a documentation address: not public either

    url = f"http://rebinding.test:{receiver.port}/"
    for _ in range(2):
        outcome = send(url.replace("http:", "https:"), **message, private=False, resolve=rebinding)
        assert "not public" in str(outcome.error)
    outcome = send(url, **message, private=True, resolve=lambda host, port: ["127.0.0.1"])
    assert outcome.status == 204  # by the address that resolve gave: the name exists nowhere
    assert receiver.got[-1][0]["host"] == f"rebinding.test:{receiver.port}"
    both = ["93.184.215.14", "10.0.0.1"]
    mixed = send(f"https://mixed.test:{receiver.port}/", **message, private=False, resolve=lambda *_: both)
    assert "10.0.0.1" in str(mixed.error)  # one private address is enough
    assert len(receiver.got) == 1


def test_public_addresses_are_classified() -> None:
    for address in ("93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"):
        assert is_public(address)
    inside = "127.0.0.1 10.0.0.1 172.16.0.1 192.168.1.1 169.254.1.1 100.64.0.1 0.0.0.0 224.0.0.1 255.255.255.255"
    tunnels = "::1 :: fe80::1%eth0 fc00::1 ff02::1 ::ffff:127.0.0.1 64:ff9b::a00:1 2002:a00:1:: 2001:0:1::1"
    for address in (*inside.split(), *tunnels.split()):
        assert not is_public(address), address


def test_signature_matches_specification() -> None:
    secret, message_id, payload = (
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        b'{"test": 2432232314}',
    )
    assert sign(secret, message_id, 1614265330, payload) == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_hanging_receiver_costs_one_attempt() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        outcome = send(url, signing=["whsec_AAAA"], message_id="m", timestamp=1, payload=b"{}", private=True)
    assert outcome.status is None
    assert "ConnectError" in str(outcome.error)


def test_slow_endpoint_rests_and_others_continue(
    api: httpx.Client,
    app: FastAPI,
    world: World,
    payer: tuple[Caller, str],
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow, quick = (_create(api, payer[0], f"{receiver.url}/{name}", events=["status"]) for name in ("slow", "quick"))
    _announce(app, world)
    monkeypatch.setattr(webhooks, "_PROMPT_SECONDS", 0)
    monkeypatch.setattr(webhooks, "_REST", 10**6)
    world.change(WebhookEndpoint, quick["id"], enabled=False)
    assert (_deliver(world), _deliver(world)) == (1, 0)
    world.change(WebhookEndpoint, quick["id"], enabled=True)
    monkeypatch.setattr(webhooks, "_PROMPT_SECONDS", 60)
    assert _deliver(world) == 2
    assert [row["status"] for row in _deliveries(api, payer[0], slow)].count("pending") == 1


def test_webhooks_at_once_stop_at_limit(
    api: httpx.Client, app: FastAPI, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.state.services.settings, "webhooks_per_account", 2)
    caller = sign_in(api)

    def create(_: int) -> httpx.Response:
        return api.post("/v1/webhooks", json={"url": receiver.url}, headers=caller.headers)

    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(create, range(5)))
    refused = [answer for answer in answers if answer.status_code != 201]
    assert len(refused) == 3
    for answer in refused:
        assert "expected at most 2" in refusal(answer, 409, "too-many-webhooks")["detail"]


def test_slow_names_leave_api_threads(api: httpx.Client, app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "_LOOKUPS", threading.BoundedSemaphore(1))
    assert webhooks._LOOKUPS.acquire(blocking=False)
    answer = api.post("/v1/webhooks", json={"url": "https://slow.test/"}, headers=sign_in(api).headers)
    refusal(answer, 503, "webhook-checks-busy")
