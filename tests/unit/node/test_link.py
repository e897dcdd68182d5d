"""The node's link: real transfers over HTTP are measured and held to a speed."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from kit.engines.http_servers import Handler, serving
from kit.waiting import wait_until

from zoo_compute.base.link import BACKGROUND, Background, Link

SIZE = 200_000


class _Echo(Handler):
    def do_POST(self) -> None:
        self.reply(self.body())

    def do_GET(self) -> None:
        self.reply(b"x" * SIZE)


@pytest.fixture
def url() -> Iterator[str]:
    with serving(_Echo) as server:
        yield server.url


def test_limited_link_takes_time_of_its_speed(url: str) -> None:
    link = Link(mbps=4.0)  # 500,000 bytes per second
    with httpx.Client(event_hooks=link.hooks()) as client:
        started = time.monotonic()
        assert client.post(url, content=b"a" * SIZE).content == b"a" * SIZE
        seconds = time.monotonic() - started
    assert seconds >= 2 * SIZE / 500_000
    assert (link.up.bytes, link.down.bytes) == (SIZE, SIZE)
    for direction in (link.up, link.down):
        assert direction.bytes_per_second is not None
        assert 0.9 * SIZE / seconds < direction.bytes_per_second <= 510_000  # also on a slow machine


def test_threads_share_speed_and_small_calls_interleave(url: str) -> None:
    link = Link(mbps=2.0)
    with httpx.Client(event_hooks=link.hooks()) as client:
        large = threading.Thread(target=lambda: client.post(url, content=b"a" * 50 * SIZE))  # 40 seconds
        large.start()
        wait_until(lambda: link.up.bytes)
        client.post(url, content=b"b" * 100)
        assert large.is_alive(), "the small call had to wait for the whole of the large one"
        for direction in (link.up, link.down):
            direction._seconds_per_byte = 0.0  # the rest is of no interest
        large.join()
    assert link.up.bytes == 50 * SIZE + 100


def test_unlimited_link_measures_only(url: str) -> None:
    link = Link()
    with httpx.Client(event_hooks=link.hooks()) as client:
        assert link.down.bytes_per_second is None
        client.post(url, content=b"a" * 100)
        assert link.up.bytes_per_second is None  # too small to tell
        with client.stream("GET", url) as response:
            assert len(b"".join(response.iter_raw())) == SIZE
    assert link.down.bytes == SIZE + 100
    assert link.down.bytes_per_second is not None


def test_resent_body_is_counted_again(url: str) -> None:
    link = Link()
    with httpx.Client(event_hooks=link.hooks()) as client:
        request = client.build_request("POST", url, content=b"a" * SIZE)
        for _ in range(2):
            client.send(request)
    assert link.up.bytes >= 2 * SIZE


def test_background_transfer_waits_for_urgent_ones(url: str, tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"b" * SIZE)
    link, pieces = Link(), 0

    def count() -> None:
        nonlocal pieces
        pieces += 1

    content = Background(tmp_path / "state", link, count, 0, SIZE)
    answers: list[bytes] = []

    def send() -> None:
        extensions = {BACKGROUND: True}
        headers = {"Content-Length": str(len(content))}
        answer = client.post(url, content=content, headers=headers, extensions=extensions)  # type: ignore[arg-type]
        answers.append(answer.content)

    with httpx.Client(event_hooks=link.hooks()) as client:
        transfer = threading.Thread(target=send)
        with link.urgent():
            transfer.start()
            transfer.join(0.5)
            assert pieces == 0
        transfer.join(30)
        send()  # and again from its start
    assert answers == [b"b" * SIZE] * 2
    assert link.up.bytes == 2 * SIZE
    assert link.up.bytes_per_second is None  # an interrupted transfer measures nothing


def test_background_transfer_ends_when_node_stops(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"b" * SIZE)
    link = Link()
    pieces = iter(Background(tmp_path / "state", link, lambda: None, 0, SIZE))
    next(pieces)
    link.stop()
    with pytest.raises(ConnectionAbortedError):
        next(pieces)


def test_parallel_transfers_measure_whole_link_rate(url: str) -> None:
    link = Link(mbps=4.0)  # 500,000 bytes per second
    with httpx.Client(event_hooks=link.hooks()) as client:
        started = time.monotonic()
        both = [threading.Thread(target=lambda: client.post(url, content=b"a" * 3 * SIZE)) for _ in range(2)]
        for one in both:
            one.start()
        for one in both:
            one.join()
        seconds = time.monotonic() - started
    assert link.up.bytes_per_second is not None
    assert link.up.bytes_per_second > 0.7 * 6 * SIZE / seconds  # each by itself had half of the link
