"""Traces from the real API and worker to an OTLP receiver; none without one."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from kit.api.clients import sign_in
from kit.engines.market_processes import ROOT, answers, environment, running
from kit.jobs.jobs_fixtures import World
from kit.waiting import wait_until

from market.settings import Settings
from zoo_compute.devnet.processes import free_port

pytest.importorskip("opentelemetry.sdk", reason="the extra `otel` is not installed")
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

DEADLINE_SECONDS = 300


class Receiver:
    """OTLP endpoint (HTTP, protobuf) that records all spans."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def take(self, request: ExportTraceServiceRequest) -> None:
        for group in request.resource_spans:
            service = {one.key: one.value.string_value for one in group.resource.attributes}["service.name"]
            for scope in group.scope_spans:
                for span in scope.spans:
                    self.spans.append(
                        {
                            "service": service,
                            "name": span.name,
                            "trace": span.trace_id.hex(),
                            "id": span.span_id.hex(),
                            "parent": span.parent_span_id.hex(),
                            "attributes": {one.key: one.value.string_value for one in span.attributes},
                        }
                    )

    def find(self, name: str, **facts: str) -> list[dict[str, Any]]:
        return [s for s in list(self.spans) if s["name"] == name and all(s[k] == v for k, v in facts.items())]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def wait_for(found: Callable[[], Any], what: str) -> Any:
    return wait_until(found, what, seconds=DEADLINE_SECONDS)


@pytest.mark.long
def test_request_statements_and_enqueued_task_form_one_trace(
    world: World, settings: Settings, receiver: Receiver, tmp_path: Path
) -> None:
    job_id = world.running([world.node() for _ in range(4)])
    env = environment(settings, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url, OTEL_BSP_SCHEDULE_DELAY="100")
    port = free_port([])
    url, log = f"http://127.0.0.1:{port}", tmp_path / "api.log"
    api = ["market.server", "--port", str(port)]
    worker = [
        "celery",
        "-A",
        "worker.main",
        "worker",
        "--pool",
        "threads",
        "--concurrency",
        "2",
        "--without-mingle",
        "-Q",
        "celery",
    ]
    with running(api, env, log), running(worker, env, tmp_path / "worker.log"):
        wait_for(lambda: answers(url), "API")
        with httpx.Client(base_url=url, timeout=DEADLINE_SECONDS) as client:
            caller = sign_in(client, world.wallets[world.read(job_id).payer])
            paused = client.post(f"/v1/jobs/{job_id}/pause", headers=caller.headers)
            assert paused.status_code == 200, paused.text
        [request] = wait_for(lambda: receiver.find("POST /v1/jobs/{job_id}/pause"), "span of the request")
        within = {"trace": request["trace"]}
        [task] = wait_for(lambda: receiver.find("events.announce", **within), "span of the task")
        queries = wait_for(lambda: receiver.find("SELECT", parent=task["id"], **within), "SQL of the task")
    assert (request["service"], task["service"]) == ("zoo-api", "zoo-worker")
    assert task["parent"] == request["id"]
    assert queries[0]["attributes"]["db.query.text"].startswith("SELECT")
    [update] = receiver.find("UPDATE", parent=request["id"], **within)
    assert "jobs" in update["attributes"]["db.query.text"]
    assert job_id not in json.dumps([update, *queries])  # statements without their parameters
    assert receiver.find("GET /healthz") == []

    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    [line] = [one for one in lines if str(one.get("path")).endswith("/pause")]
    assert line["trace_id"] == request["trace"]


def test_chain_call_span_shows_only_host(receiver: Receiver) -> None:
    program = (
        "import requests\n"
        "from opentelemetry import trace\n"
        "from market.platform.observability.tracing import configure_tracing\n"
        "assert len(configure_tracing('zoo-test')) == 1 == len(configure_tracing('zoo-test'))\n"
        f"requests.post('{receiver.url}/v3/secret-key?token=secret-key', data=b'')\n"
        "trace.get_tracer_provider().shutdown()\n"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT), "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}
    subprocess.run([sys.executable, "-c", program], check=True, env=env, timeout=300, capture_output=True)
    [call] = receiver.spans
    assert call["name"] == "POST"
    assert "http://127.0.0.1" in call["attributes"].values()
    assert "secret-key" not in json.dumps(call)


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_SDK_DISABLED": "true"},
        *(pytest.param(one, marks=pytest.mark.long) for one in ({}, {"OTEL_TRACES_EXPORTER": "none"})),
    ],
)
def test_tracing_is_not_loaded_without_endpoint(variables: dict[str, str]) -> None:
    program = (
        "import sys\n"
        "from market.platform.observability.tracing import configure_tracing\n"
        "import market.app, worker.app\n"
        "assert not configure_tracing('zoo-api')\n"
        "assert 'market.platform.observability.spans' not in sys.modules\n"
        "assert 'opentelemetry.sdk.trace' not in sys.modules\n"
    )
    if variables:
        variables = variables | {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    env = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_")} | {"PYTHONPATH": str(ROOT)} | variables
    subprocess.run([sys.executable, "-c", program], check=True, env=env, timeout=300)


def test_missing_tracing_packages_are_named_and_ignored() -> None:
    program = (
        "import sys\n"
        "sys.modules['opentelemetry.sdk'] = None\n"
        "from market.platform.observability.tracing import configure_tracing\n"
        "assert configure_tracing('zoo-api') == ()\n"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT), "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, env=env, timeout=300, capture_output=True, text=True
    )
    assert "install zoo-compute[otel]" in done.stderr
