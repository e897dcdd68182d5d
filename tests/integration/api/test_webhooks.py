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
from kit.api.clients import Caller, accepted, refusal, sign_in
from kit.engines.http_servers import Handler, serving
from kit.jobs.jobs_fixtures import World, at_once
from sqlalchemy import update
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from market.platform.db.base import utc_now
from market.platform.events.service import announce
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


@dataclass
class Hooks:
    """The payer of a job, and the market that sends its events to the receiver."""

    app: FastAPI
    world: World
    receiver: Receiver
    payer: Caller
    job_id: str

    def create(self, caller: Caller | None = None, path: str = "") -> dict[str, Any]:
        return _create(caller or self.payer, self.receiver.url + path, events=["status"])

    def announce(self) -> None:
        announce(self.world.database, self.app.state.services.redis, webhooks.fan_out)

    def deliver(self) -> int:
        return webhooks.deliver_due(self.world.database, private=True)

    def deliveries(self, made: dict[str, Any]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.payer.get(f"/v1/webhooks/{made['id']}/deliveries").json()["items"]
        return found

    def pass_time(self) -> None:
        self.world.execute(update(WebhookDelivery).values(next_attempt_at=utc_now() - timedelta(seconds=1)))


@pytest.fixture
def hooks(api: httpx.Client, app: FastAPI, world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Hooks:
    # On a slow machine an attempt could count as slow, and the first retry be due.
    monkeypatch.setattr(webhooks, "_PROMPT_SECONDS", 60)
    monkeypatch.setattr(webhooks, "RETRY_AFTER", (timedelta(minutes=5), *webhooks.RETRY_AFTER[1:]))
    job_id = world.job()
    return Hooks(app, world, receiver, sign_in(api, world.wallets[world.read(job_id).payer]), job_id)


def _create(caller: Caller, url: str, **options: Any) -> dict[str, Any]:
    made: dict[str, Any] = accepted(caller.post("/v1/webhooks", json={"url": url, **options}), 201)
    return made


def test_webhook_may_subscribe_to_all_events(hooks: Hooks) -> None:
    everything = sorted(get_args(EventKind))
    assert _create(hooks.payer, hooks.receiver.url, events=everything)["events"] == everything


def test_events_arrive_once_and_verify_by_reference_library(hooks: Hooks) -> None:
    made = hooks.create()
    outsider = sign_in(hooks.payer.api)
    hooks.create(outsider)  # it has no job, so it hears nothing
    hooks.announce()
    hooks.announce()
    sent = hooks.deliver()
    assert (sent, hooks.deliver(), len(hooks.receiver.got)) == (2, 0, 2)  # funded, matching
    for headers, body in hooks.receiver.got:
        payload = Webhook(made["secret"]).verify(body, headers)
        assert payload["type"] == "job.status"
        assert payload["data"]["job_id"] == hooks.job_id
        with pytest.raises(WebhookVerificationError):
            Webhook(made["secret"]).verify(body + b" ", headers)
    ids = [headers["webhook-id"] for headers, _ in hooks.receiver.got]
    assert len(set(ids)) == 2
    rows = hooks.deliveries(made)
    assert {row["message_id"] for row in rows} == set(ids)
    assert {row["status"] for row in rows} == {"delivered"}
    assert "secret" not in hooks.payer.get(f"/v1/webhooks/{made['id']}").json()
    refusal(outsider.get(f"/v1/webhooks/{made['id']}"), 404, "webhook-not-found")


def test_failed_delivery_is_retried_and_can_be_replayed(hooks: Hooks) -> None:
    made = hooks.create()
    hooks.announce()
    hooks.receiver.status = 500
    first = hooks.deliver()
    assert hooks.deliver() == 0  # not before its time
    failed = hooks.deliveries(made)[0]
    assert (failed["status"], failed["attempts"], failed["response_status"]) == ("pending", 1, 500)
    for attempt in range(2, len(webhooks.RETRY_AFTER) + 2):
        hooks.pass_time()
        assert hooks.deliver() == first
        assert hooks.deliveries(made)[0]["attempts"] == attempt
    assert hooks.deliveries(made)[0]["status"] == "failed"
    hooks.pass_time()
    assert hooks.deliver() == 0
    hooks.receiver.status = 200
    path = f"/v1/webhooks/{made['id']}/deliveries/{failed['id']}/replay"
    assert hooks.payer.post(path).json()["status"] == "pending"
    assert hooks.deliver() == 1
    assert hooks.receiver.got[-1][0]["webhook-id"] == failed["message_id"]  # the same message
    refusal(hooks.payer.post(path.replace(f"/{failed['id']}/", "/999999/")), 404, "delivery-not-found")


def test_workers_at_once_send_each_message_once(hooks: Hooks) -> None:
    for _ in range(4):
        hooks.create()
    hooks.announce()
    assert at_once([lambda: hooks.deliver() for _ in range(3)]) == [None] * 3
    ids = [headers["webhook-id"] for headers, _ in hooks.receiver.got]
    assert len(ids) == len(set(ids)) == 8


def test_old_and_new_secret_verify_after_rotation(hooks: Hooks) -> None:
    made = hooks.create()
    path = f"/v1/webhooks/{made['id']}/rotate-secret"
    rotated = hooks.payer.post(path, json={"overlap_hours": 1}).json()
    hooks.announce()
    hooks.deliver()
    headers, body = hooks.receiver.got[-1]
    for secret in (made["secret"], rotated["secret"]):
        Webhook(secret).verify(body, headers)
    hooks.payer.post(path, json={"overlap_hours": 0})
    hooks.world.execute(update(WebhookDelivery).values(status="pending", next_attempt_at=utc_now()))
    hooks.deliver()
    headers, body = hooks.receiver.got[-1]
    with pytest.raises(WebhookVerificationError):
        Webhook(rotated["secret"]).verify(body, headers)


def test_gone_receiver_is_disabled_and_redirect_fails(hooks: Hooks) -> None:
    made = hooks.create()
    hooks.announce()
    hooks.receiver.status, hooks.receiver.location = 307, hooks.receiver.url
    before = hooks.deliver()
    assert len(hooks.receiver.got) == before  # nothing was followed
    assert hooks.deliveries(made)[0]["response_status"] == 307
    hooks.receiver.status, hooks.receiver.location = 410, None
    hooks.pass_time()
    hooks.deliver()
    assert hooks.payer.get(f"/v1/webhooks/{made['id']}").json()["enabled"] is False
    on = hooks.payer.patch(f"/v1/webhooks/{made['id']}", json={"enabled": True}).json()
    assert on["enabled"] is True
    assert hooks.payer.delete(f"/v1/webhooks/{made['id']}").status_code == 204
    assert hooks.payer.get("/v1/webhooks").json() == []


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
    answer = caller.post("/v1/webhooks", json={"url": url})
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


def test_slow_endpoint_rests_and_others_continue(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, quick = (hooks.create(path=name) for name in ("/slow", "/quick"))
    hooks.announce()
    monkeypatch.setattr(webhooks, "_PROMPT_SECONDS", 0)
    monkeypatch.setattr(webhooks, "_REST", 10**6)
    hooks.world.change(WebhookEndpoint, quick["id"], enabled=False)
    assert (hooks.deliver(), hooks.deliver()) == (1, 0)
    hooks.world.change(WebhookEndpoint, quick["id"], enabled=True)
    monkeypatch.setattr(webhooks, "_PROMPT_SECONDS", 60)
    assert hooks.deliver() == 2
    assert [row["status"] for row in hooks.deliveries(slow)].count("pending") == 1


def test_webhooks_at_once_stop_at_limit(
    api: httpx.Client, app: FastAPI, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.state.services.settings, "webhooks_per_account", 2)
    caller = sign_in(api)

    def create(_: int) -> httpx.Response:
        return caller.post("/v1/webhooks", json={"url": receiver.url})

    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(create, range(5)))
    refused = [answer for answer in answers if answer.status_code != 201]
    assert len(refused) == 3
    for answer in refused:
        assert "expected at most 2" in refusal(answer, 409, "too-many-webhooks")["detail"]


def test_slow_names_leave_api_threads(api: httpx.Client, app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "_LOOKUPS", threading.BoundedSemaphore(1))
    assert webhooks._LOOKUPS.acquire(blocking=False)
    answer = sign_in(api).post("/v1/webhooks", json={"url": "https://slow.test/"})
    refusal(answer, 503, "webhook-checks-busy")
