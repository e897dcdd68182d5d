"""Rules of every endpoint: problems, limits, ids, idempotency, health, OpenAPI."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from kit.api.clients import Caller, refusal, sign_in
from kit.errors import raising
from kit.records import Records
from kit.waiting import wait_until
from pydantic import RootModel
from sqlalchemy import func, select, text, update
from sqlalchemy.orm import Session

from market.accounts.idempotency import IdempotentCall
from market.api.problem_pages import known_problems
from market.platform.db.session import Database
from market.platform.http.errors import KeyReused, RequestInFlight
from market.platform.http.problem import MarketError
from market.platform.http.services import Services
from market.platform.storage.models import BlobUpload
from zoo_protocol.content import unixfs

CALLER = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
ASK = {
    "provider": CALLER,
    "tier": 1,
    "gpus": 4,
    "minPrice": "2000000000000000000",
    "validUntil": 2_000_000_000,
    "nonce": "1",
}


def test_unknown_key_error_names_nearest_known_key(api: httpx.Client) -> None:
    problem = refusal(api.post("/v1/auth/nonce", json={"adress": CALLER}), 422, "invalid-request")
    assert problem["field"] == "adress"
    assert "'address'" in str(problem["remedy"])


def test_unknown_nested_key_has_its_path(api: httpx.Client) -> None:
    caller = sign_in(api)
    body = {"ask": ASK | {"min_price": "1"}, "signature": "0x" + "00" * 65}
    problem = refusal(caller.post("/v1/asks", json=body), 422, "invalid-request")
    assert problem["field"] == "ask.min_price"
    assert "'minPrice'" in str(problem["remedy"])


def test_wei_accepts_only_decimal_digit_strings(api: httpx.Client) -> None:
    caller = sign_in(api)
    for wei in (1, -1, 1.5, "-1", "1.5", "0x10", "1e18", "", " 1", "01", "٣", None, True, str(2**256)):
        body = {"ask": ASK | {"minPrice": wei}, "signature": "0x" + "00" * 65}
        problem = refusal(caller.post("/v1/asks", json=body), 422, "invalid-request")
        assert problem["field"] == "ask.minPrice"
        assert "decimal string" in str(problem["detail"])


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("ask.gpus", {"ask": ASK | {"gpus": True}, "signature": "0x" + "00" * 65}),
        ("ask.validUntil", {"ask": ASK | {"validUntil": False}, "signature": "0x" + "00" * 65}),
    ],
)
def test_truth_value_as_number_is_refused(api: httpx.Client, field: str, body: dict[str, Any]) -> None:
    problem = refusal(sign_in(api).post("/v1/asks", json=body), 422, "invalid-request")
    assert (problem["field"], problem["detail"]) == (field, f"{field}: is true or false; give a number")


def test_malformed_or_miscopied_address_is_refused(api: httpx.Client) -> None:
    for address in ("0x12", CALLER.swapcase(), CALLER.removeprefix("0x"), 7):
        problem = refusal(api.post("/v1/auth/nonce", json={"address": address}), 422, "invalid-request")
        assert problem["field"] == "address"


def test_non_json_body_is_refused(api: httpx.Client) -> None:
    answer = api.post("/v1/auth/nonce", content=b"{", headers={"content-type": "application/json"})
    assert refusal(answer, 422, "invalid-request")["field"] == "body"


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (b'{"address": "0x12"}', "text/plain"),
        (b"a=1", "application/x-www-form-urlencoded"),
        (b"[" * 9999, "application/json"),
    ],
)
def test_wrong_content_type_error_names_expected_type(api: httpx.Client, content: bytes, media_type: str) -> None:
    answer = api.post("/v1/auth/nonce", content=content, headers={"content-type": media_type})
    problem = refusal(answer, 422, "invalid-request")
    assert (problem["field"], problem["remedy"]) == ("body", "Send valid JSON with Content-Type: application/json.")


def test_oversized_body_is_refused_with_or_without_length(api: httpx.Client) -> None:
    refusal(api.post("/v1/auth/nonce", content=b"x" * 300_000), 413, "body-too-large")
    refusal(api.post("/v1/auth/nonce", content=iter([b"x" * 100_000] * 5)), 413, "body-too-large")


def test_unknown_paths_and_methods_are_problems(api: httpx.Client) -> None:
    refusal(api.get("/v1/nothing"), 404, "not-found")
    answer = api.put("/v1/network")
    refusal(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == "GET"


def test_every_answer_has_request_id(api: httpx.Client) -> None:
    assert len(api.get("/healthz").headers["x-request-id"]) == 32
    assert api.get("/healthz", headers={"X-Request-ID": "abc-1"}).headers["x-request-id"] == "abc-1"
    assert api.get("/healthz", headers={"X-Request-ID": "a b"}).headers["x-request-id"] != "a b"


def test_failed_commit_is_never_success(api: httpx.Client, records: Records) -> None:
    records.execute(  # a constraint that only the commit checks
        text("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$"),
        text(
            "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON siwe_nonces DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION refuse()"
        ),
    )
    answer = api.post("/v1/auth/nonce", json={"address": CALLER})
    records.execute(text("DROP FUNCTION refuse CASCADE"))
    problem = refusal(answer, 500, "internal-error")
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert "refuse" not in answer.text


def test_blob_gets_standard_cid(api: httpx.Client) -> None:
    caller = sign_in(api)
    for content in (b"hello", bytes(range(256)) * 4000):
        answer = caller.post("/v1/blobs", content=content)
        assert answer.status_code == 201
        assert answer.json() == {"cid": unixfs.cid_of_file(content), "size": len(content)}
    refusal(api.post("/v1/blobs", content=b"x"), 401, "not-authenticated")


def test_oversized_blob_is_refused(api: httpx.Client) -> None:
    caller = sign_in(api)
    refusal(caller.post("/v1/blobs", content=b"x" * 3_000_001), 413, "body-too-large")
    refusal(caller.post("/v1/blobs", content=iter([b"x" * 1_000_000] * 4)), 413, "body-too-large")


def test_daily_upload_quota_limits_account(
    api: httpx.Client, app: FastAPI, services: Services, records: Records
) -> None:
    settings = services.settings.model_copy(update={"blob_bytes_per_day": 200_000})
    app.state.services = replace(services, settings=settings)
    caller, other = sign_in(api), sign_in(api)

    def upload(number: int, by: Caller = caller) -> httpx.Response:
        return by.post("/v1/blobs", content=bytes([number]) * 100_000)

    assert [upload(number).status_code for number in (1, 1, 1, 2)] == [201] * 4  # the same bytes count once
    problem = refusal(upload(3), 403, "storage-quota-exceeded")
    assert (problem["quota_bytes"], problem["used_bytes"]) == (200_000, 200_000)
    assert str(problem["not_before"]) > f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    refusal(caller.post("/v1/blobs", content=iter([b"x"])), 403, "storage-quota-exceeded")
    assert upload(3, other).status_code == 201
    records.execute(update(BlobUpload).values(created_at=datetime.now(UTC) - timedelta(days=1)))
    assert upload(3).status_code == 201


def test_concurrent_uploads_respect_quota(api: httpx.Client, app: FastAPI, services: Services) -> None:
    settings = services.settings.model_copy(update={"blob_bytes_per_day": 250_000})
    app.state.services = replace(services, settings=settings)
    caller = sign_in(api)

    def upload(number: int) -> int:
        return caller.post("/v1/blobs", content=bytes([number]) * 100_000).status_code

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(upload, range(6))) == [201, 201, 403, 403, 403, 403]


def test_quota_counts_uploads_while_they_arrive(
    api: httpx.Client, app: FastAPI, services: Services, database: Database
) -> None:
    settings = services.settings.model_copy(update={"blob_bytes_per_day": 250_000})
    app.state.services = replace(services, settings=settings)
    caller = sign_in(api)
    headers = {**caller.headers, "Content-Length": "200000"}

    def charged() -> int:
        with database.reading() as session:
            return session.scalar(select(func.coalesce(func.sum(BlobUpload.charged), 0))) or 0

    def body(*, is_broken: bool) -> Iterator[bytes]:
        yield bytes(100_000)
        wait_until(lambda: charged() == 200_000)
        refusal(api.post("/v1/blobs", content=bytes(100_000), headers=caller.headers), 403, "storage-quota-exceeded")
        if is_broken:
            raise BrokenPipeError
        yield bytes(100_000)

    with pytest.raises(BrokenPipeError):
        api.post("/v1/blobs", content=body(is_broken=True), headers=headers)
    wait_until(lambda: charged() == 0)
    assert api.post("/v1/blobs", content=body(is_broken=False), headers=headers).status_code == 201
    assert charged() == 200_000


Answer = RootModel[dict[str, object]]


class TestIdempotency:
    def _once(self, database: Database, body: str = "a") -> IdempotentCall:
        return IdempotentCall(database, CALLER, "key-1", "0x" + body * 64)

    def test_retry_returns_first_answer_without_effect(self, database: Database) -> None:
        calls: list[int] = []

        def work(session: Session) -> tuple[int, Answer]:
            calls.append(1)
            return 201, Answer({"call": len(calls)})

        first, second = self._once(database).run(work), self._once(database).run(work)
        assert (first.status_code, first.body) == (second.status_code, second.body) == (201, b'{"call":1}')
        earlier = self._once(database).earlier_answer()
        assert earlier is not None
        assert earlier.body == first.body
        with pytest.raises(KeyReused):
            self._once(database, body="b").run(work)
        with pytest.raises(KeyReused):
            self._once(database, body="b").earlier_answer()
        assert len(calls) == 1

    def test_failed_request_frees_idempotency_key(self, database: Database) -> None:
        with pytest.raises(MarketError):
            self._once(database).run(raising(MarketError("no")))
        assert self._once(database).earlier_answer() is None
        assert self._once(database).run(lambda session: (200, Answer({}))).status_code == 200

    def test_concurrent_duplicate_request_is_refused(self, database: Database) -> None:
        begun, finish = threading.Event(), threading.Event()

        def slow(session: Session) -> tuple[int, Answer]:
            begun.set()
            assert finish.wait(30)
            return 200, Answer({"slow": True})

        worker = threading.Thread(target=lambda: self._once(database).run(slow))
        worker.start()
        assert begun.wait(30)
        try:
            with pytest.raises(RequestInFlight):
                self._once(database).run(slow)
        finally:
            finish.set()
            worker.join(30)
        assert self._once(database).run(slow).body == b'{"slow":true}'


def test_network_endpoint_names_client_parameters(api: httpx.Client) -> None:
    network = api.get("/v1/network").json()
    assert network["eip712_domain"]["verifyingContract"] == network["contracts"]["JobEscrow"]
    assert network["tiers"]["bronze"]["reserve_price_wei"] == "2500000000000000000"
    assert network["chain_id"] == network["eip712_domain"]["chainId"] == 31337


def test_health_names_failing_part(api: httpx.Client) -> None:
    assert api.get("/healthz").json() == {"status": "alive"}
    answer = api.get("/readyz")
    assert answer.status_code == 503  # there is no chain here
    checks = answer.json()["checks"]
    assert {name for name, check in checks.items() if check["ok"]} == {"database", "redis", "storage"}
    metrics = api.get("/metrics").text
    assert 'zoo_ready{check="chain"} 0.0' in metrics
    assert 'zoo_http_requests_total{method="GET",route="/readyz",status="503"}' in metrics


def test_every_problem_has_its_page(api: httpx.Client) -> None:
    overview = api.get("/problems").text
    for code, problem in known_problems().items():
        assert f'id="{code}"' in overview
        page = api.get(f"/problems/{code}")
        assert page.status_code == 200
        assert problem.title.replace("'", "&#39;") in page.text
    refusal(api.get("/problems/nonsense"), 404, "not-found")


def test_openapi_is_complete(app: FastAPI) -> None:
    document = app.openapi()
    operations = [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    ids = [operation["operationId"] for _, _, operation in operations]
    assert len(ids) == len(set(ids))
    assert all(id_.isidentifier() for id_ in ids)
    for path, _, operation in operations:
        assert operation["tags"], path
        assert operation.get("description"), path
        for status, response in operation["responses"].items():
            if status.startswith("4"):
                assert set(response["content"]) == {"application/problem+json"}, (path, status)
    assert "Problem" in document["components"]["schemas"]
