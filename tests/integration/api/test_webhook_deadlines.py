"""Deadlines of a webhook attempt against receivers and name servers that stay silent."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from select import select

import pytest

from market.webhooks import http_delivery
from market.webhooks.http_delivery import Resolve, send

LONGEST_SECONDS = 9.0  # for a slow machine, and less than an attempt may take that is not hurried


@pytest.fixture
def silent() -> Iterator[str]:
    """URL of a receiver that accepts connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_delivery, "TOTAL_SECONDS", 0.4)
    monkeypatch.setattr(http_delivery, "DNS_SECONDS", 0.2)


def _seconds_of_attempt(url: str, resolve: Resolve = http_delivery.resolve) -> float:
    began = time.monotonic()
    outcome = send(
        url, signing=["whsec_AAAA"], message_id="m", timestamp=1, payload=b"{}", private=True, resolve=resolve
    )
    assert outcome.status is None
    assert "within" in str(outcome.error)
    return time.monotonic() - began


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_silent_receiver_is_left_at_deadline(silent: str, scheme: str) -> None:
    assert _seconds_of_attempt(silent.replace("http", scheme)) < LONGEST_SECONDS


@pytest.mark.usefixtures("hurried")
def test_trickled_head_is_left_at_deadline() -> None:
    with socket.socket() as listening, ThreadPoolExecutor() as pool:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        pool.submit(_trickle, listening)
        assert _seconds_of_attempt(f"http://127.0.0.1:{listening.getsockname()[1]}/") < LONGEST_SECONDS


def _trickle(listening: socket.socket) -> None:
    connection, _ = listening.accept()
    with connection, suppress(OSError):
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not select([connection], [], [], 0.05)[0] or connection.recv(2**16):
            connection.sendall(b"a")


@pytest.mark.usefixtures("hurried")
def test_silent_name_server_ends_attempt() -> None:
    over = threading.Event()

    def look_up(host: str, port: int) -> list[str]:
        over.wait(60)
        return ["127.0.0.1"]

    assert _seconds_of_attempt("http://slow.test/", look_up) < LONGEST_SECONDS
    over.set()
