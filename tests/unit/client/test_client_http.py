"""The connection against a misbehaving HTTP server (a fake here)."""

import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account
from eth_account.messages import encode_defunct
from kit.engines.http_servers import Handler, serving
from kit.errors import raises_code
from kit.waiting import delay

from zoo_compute.base.errors import ApiError, ConfigError, ExitCode, Unreachable
from zoo_compute.chain.wallet import Wallet
from zoo_compute.cli.main import main
from zoo_compute.cli.session import open_client, save_login
from zoo_compute.client.http import Connection
from zoo_compute.client.job import Job, parse_events

KEY = "0x" + "11" * 32
Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Market:
    answer: Callable[["Request"], Answer] = lambda _request: (404, {}, b"")
    requests: list["Request"] = field(default_factory=list)
    url: str = ""


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def reply(status: int, document: Any = None, kind: str = "application/json") -> Answer:
    return status, {"Content-Type": kind}, b"" if document is None else json.dumps(document).encode()


def problem(status: int, code: str, **extra: Any) -> Answer:
    return reply(status, {"status": status, "code": code, "detail": f"no {code}", **extra}, "application/problem+json")


@pytest.fixture
def market() -> Iterator[Market]:
    state = Market()

    class Api(Handler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            request = Request(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, self.body())
            state.requests.append(request)
            status, headers, content = state.answer(request)
            if status == 0:  # a process killed in mid-request
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            self.reply(content, status, **headers)

        do_GET = do_POST = do_DELETE = _serve

    with serving(Api) as server:
        state.url = server.url
        yield state


def test_client_signs_in_on_demand_and_after_expiry(market: Market) -> None:
    wallet = Wallet(KEY)
    valid: set[str] = set()

    def answer(request: Request) -> Answer:
        if request.path == "/v1/auth/nonce":
            challenge = {"nonce": "n0nce1234", "domain": "market.test", "uri": "http://market.test", "chain_id": 31337}
            return reply(201, {**challenge, "statement": "Sign in.", "expires_at": "2030-01-01T00:00:00Z"})
        if request.path == "/v1/auth/siwe":
            message = request.json()["message"]
            signer = Account.recover_message(encode_defunct(text=message), signature=request.json()["signature"])
            assert signer == wallet.address
            first = "market.test wants you to sign in with your Ethereum account:"
            assert message.startswith(f"{first}\n{signer}\n\nSign in.")
            assert "Nonce: n0nce1234" in message
            valid.add(f"t{len(valid)}")
            return reply(200, {"token": max(valid)})
        known = request.headers.get("authorization", "").removeprefix("Bearer ") in valid
        return reply(200, {"ok": True}) if known else problem(401, "not-authenticated")

    market.answer = answer
    connection = Connection(market.url, wallet=wallet)
    assert connection.get("/v1/me") == {"ok": True}
    assert connection.get("/v1/me") == {"ok": True}
    assert [request.path for request in market.requests].count("/v1/auth/siwe") == 1
    valid.clear()
    valid.add("revoked")
    assert connection.get("/v1/me") == {"ok": True}


def test_refused_api_key_raises_without_loop(market: Market) -> None:
    market.answer = lambda _request: problem(401, "not-authenticated", remedy="Sign in.")
    with pytest.raises(ApiError) as error:
        Connection(market.url, wallet=Wallet(KEY), api_key="zk_wrong").get("/v1/me")
    assert (error.value.status, error.value.code) == (401, "not-authenticated")
    assert "ZOO_API_KEY" in (error.value.remedy or "")  # and not the market's, which is of HTTP headers
    assert len(market.requests) == 1


def test_only_repeatable_calls_are_repeated(market: Market) -> None:
    market.answer = lambda _request: problem(503, "storage-down") if len(market.requests) < 3 else reply(200, {"n": 3})
    assert Connection(market.url).get("/v1/x") == {"n": 3}
    market.requests.clear()
    with pytest.raises(Unreachable, match="no storage-down"):
        Connection(market.url).post("/v1/x", {})
    assert len(market.requests) == 1


def test_request_to_killed_market_is_retried(market: Market) -> None:
    market.answer = lambda _request: (0, {}, b"") if len(market.requests) == 1 else reply(200, {"ok": True})
    assert Connection(market.url).post("/v1/x", {"a": 1}, repeatable=True) == {"ok": True}
    assert [request.json() for request in market.requests] == [{"a": 1}, {"a": 1}]


def test_request_fails_after_retry_time(market: Market) -> None:
    market.answer = lambda _request: problem(503, "storage-down")
    with raises_code(Unreachable, "market-unreachable"):
        Connection(market.url, retry_seconds=0.5).get("/v1/x")
    with pytest.raises(Unreachable):
        Connection("http://127.0.0.1:9", retry_seconds=0.2).get("/v1/x")


def test_problem_keeps_its_code_field_and_remedy(market: Market) -> None:
    market.answer = lambda _request: problem(422, "invalid-spec", field="tier", remedy="Choose one.", reason="typo")
    with pytest.raises(ApiError) as error:
        Connection(market.url).post("/v1/quotes", {}, repeatable=True)
    found = error.value
    assert (found.code, found.field, found.remedy) == ("invalid-spec", "tier", "Choose one.")
    assert found.extra == {"reason": "typo"}
    assert "tier: no invalid-spec" in str(found)
    assert len(market.requests) == 1, "a refusal is not repeated"


def test_proxy_error_page_is_no_market_refusal(market: Market) -> None:
    """A proxy may answer 404; a node that believed it would drop its lease."""
    answers = [(403, {"Content-Type": "text/html"}, b"<html>"), (404, {}, b"404 page not found")]
    for market.answer in [lambda _request, answer=answer: answer for answer in answers]:
        with raises_code(Unreachable, "no-market") as error:
            Connection(market.url, retry_seconds=0.2).get("/v1/x")
        assert f"GET {market.url}/v1/x returned HTTP 40" in error.value.detail
        assert "no market" in (error.value.remedy or "")
    waiting = iter([*answers, reply(200, {"fine": True})])
    market.answer = lambda _request: next(waiting)
    assert Connection(market.url).get("/v1/x") == {"fine": True}


def test_invalid_sign_in_counts_as_no_answer(market: Market) -> None:
    """Another error would end the thread that keeps a lease, and the lease with it."""
    market.answer = lambda request: problem(401, "not-authenticated") if request.path == "/v1/x" else reply(200, [])
    with raises_code(Unreachable, "answer-unknown"):
        Connection(market.url, wallet=Wallet(KEY), retry_seconds=0.2).get("/v1/x")


def test_non_json_answer_is_no_market(market: Market) -> None:
    market.answer = lambda _request: (200, {"Content-Type": "text/html"}, b"<html>")
    with raises_code(Unreachable, "no-market") as error:
        Connection(market.url, retry_seconds=0.2).get("/v1/network")
    assert f"{market.url}/v1/network" in error.value.detail
    assert len(market.requests) > 1, "a proxy's page while the market is away ends nothing"


def test_malformed_answer_raises_client_error(
    market: Market, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    market.answer = lambda _request: reply(200, {"name": "something else"})
    monkeypatch.setattr("sys.argv", ["zoo-compute", "network", "--json", "--api-url", market.url])
    with pytest.raises(SystemExit) as ended:
        main()
    captured = capsys.readouterr()
    assert (ended.value.code, captured.out) == (ExitCode.UNREACHABLE, "")
    assert json.loads(captured.err)["error"]["code"] == "answer-unknown"


def test_missing_key_refusal_names_its_place(market: Market) -> None:
    market.answer = lambda _request: problem(401, "not-authenticated", remedy="Send a header.")
    with pytest.raises(ApiError) as error:
        Connection(market.url).get("/v1/me")
    assert "ZOO_PRIVATE_KEY" in (error.value.remedy or "")
    with pytest.raises(ApiError) as error:  # here the sign-in is refused, for a reason of its own
        Connection(market.url, wallet=Wallet(KEY)).get("/v1/me")
    assert error.value.remedy == "Send a header."


def test_saved_login_serves_market_under_any_url_form(
    market: Market, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ZOO_PRIVATE_KEY", "ZOO_KEYSTORE", "ZOO_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    market.answer = lambda _request: reply(200, {})
    save_login(market.url, "zck_saved")
    for url in (None, market.url, f"{market.url}/"):
        open_client(url).connection.get("/v1/me")
    monkeypatch.setenv("ZOO_API_KEY", "zck_mine")  # the environment's key goes before
    open_client(None).connection.get("/v1/me")
    monkeypatch.delenv("ZOO_API_KEY")
    save_login("https://other.test", "zck_saved")
    open_client(market.url).connection.get("/v1/me")
    sent = [request.headers.get("authorization") for request in market.requests]
    assert sent == ["Bearer zck_saved"] * 3 + ["Bearer zck_mine", None]


def test_detail_naming_its_field_is_not_prefixed(market: Market) -> None:
    market.answer = lambda _request: reply(422, {"code": "invalid-request", "field": "tier", "detail": "tier: unknown"})
    with pytest.raises(ApiError) as error:
        Connection(market.url).get("/v1/x")
    assert error.value.detail == "tier: unknown"


def test_id_unusable_in_url_is_refused(market: Market) -> None:
    with raises_code(ConfigError, "address-malformed"):
        Connection(market.url).get("/v1/jobs/a\nb")


def test_html_page_instead_of_answer_is_retried(market: Market) -> None:
    """A proxy may answer with status 200 during an update of the market."""

    def answer(_request: Request) -> Answer:
        page = 200, {"Content-Type": "text/html"}, b"<html>we are back soon</html>"
        return page if len(market.requests) < 3 else reply(200, {"back": True})

    market.answer = answer
    assert Connection(market.url).get("/v1/x") == {"back": True}
    market.requests.clear()
    with pytest.raises(Unreachable, match="text/html instead of JSON"):
        Connection(market.url).post("/v1/x")  # a POST may not be repeated


def test_attempt_outlasting_retry_time_is_repeated(market: Market) -> None:
    def answer(_request: Request) -> Answer:
        if len(market.requests) == 1:
            delay(1.0)
            return 0, {}, b""
        return reply(200, {"cid": "c"})

    market.answer = answer
    assert Connection(market.url, retry_seconds=0.5).post("/v1/blobs", {}, repeatable=True) == {"cid": "c"}


def stream(content: bytes) -> Answer:
    return 200, {"Content-Type": "text/event-stream"}, content


def test_events_resume_after_lost_connection_until_job_ends(market: Market, caplog: pytest.LogCaptureFixture) -> None:
    def answer(request: Request) -> Answer:
        asked = len([one for one in market.requests if one.path.endswith("/events")])
        if not request.path.endswith("/events"):
            return reply(200, {**JOB, "status": "settled" if asked >= 3 else "running"})
        seen = int(request.headers["last-event-id"])
        if seen == 0:
            return stream(_event(1, "status") + _event(2, "step") + b"id: 3\ndata: {")
        if asked == 2:  # the state may be asked for twice, on a connection that was closed
            return problem(503, "starting")
        return stream(b": ping\n\n" + _event(3, "round") if seen == 2 else b"")

    market.answer = answer
    from zoo_compute.client.client import Client

    job = Job(Client(market.url, private_key=KEY), JOB["id"])
    assert [(event.id, event.kind) for event in job.events()] == [(1, "status"), (2, "step"), (3, "round")]
    assert caplog.text.count("market_unreachable") == 1, "it says once that nothing is heard"


def _event(number: int, kind: str) -> bytes:
    return f'id: {number}\nevent: {kind}\ndata: {{"status": "running"}}\n\n'.encode()


def test_parse_events_joins_data_lines_and_drops_comments() -> None:
    lines = [": hello", "", "id:7", "event: x", 'data: {"a":', "data: 1}", "", "data: {}", ""]
    assert [(event.id, event.kind, event.data) for event in parse_events(lines)] == [(7, "x", {"a": 1})]


@pytest.mark.parametrize(
    "url", ["market.test", "ftp://market.test", "", "http://", "https:///v1", "http://[::1", "http://market.test:port"]
)
def test_non_url_address_is_refused(url: str) -> None:
    with raises_code(ConfigError, "api-url-malformed"):
        Connection(url)


_UNKNOWN = ("paid_wei", "fee_wei", "refund_wei", "clearing_price_wei_per_gpu_hour", "open_tx", "settlement_tx")
_LATER = ("initial_loss", "final_loss", "final_model_cid", "matched_at", "first_step_at", "settled_at")
JOB: dict[str, Any] = {
    "id": "0x" + "ab" * 32,
    "payer": "0x19E7E376E7C213B7E7e7e46cc70A5dD086DAff2A",
    "status": "running",
    "reason": "completed",
    **{"tier": "bronze", "nodes": 4, "rounds": 8, "units_ordered": 32, "unit_weight_us": 1, "sampling_bps": 200},
    "spec": {},
    **dict.fromkeys(("budget_wei", "max_price_wei", "escrowed_wei"), "5"),
    "wait_until": "2030-01-01T00:00:00Z",
    "created_at": "2026-01-01T00:00:00Z",
    "progress": {"round": 0, "rounds": 8, "units": {}, "validation_loss": None},
    **dict.fromkeys((*_UNKNOWN, *_LATER)),
}


@pytest.mark.parametrize("key", ["zck_…", "zck_a\nzck_b", "zck_\x00"])
def test_invalid_header_api_key_is_refused_before_sending(key: str) -> None:
    with raises_code(ConfigError, "api-key-malformed") as error:
        Connection("https://market.example", api_key=key)
    assert key not in str(error.value)


def test_api_key_may_end_with_newline() -> None:
    Connection("https://market.example", api_key="zck_a\n").close()
