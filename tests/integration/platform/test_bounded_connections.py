"""Peers of the server with oversized heads, slow transfers or many connections."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest
import uvicorn
from kit.waiting import wait_until
from starlette.types import Receive, Scope, Send

from market.platform.http.bounded import Limits, limited

QUICK = Limits(head_bytes=1024, head_seconds=0.1, transfer_seconds=0.1, bytes_per_second=100_000)
POST = b"POST / HTTP/1.1\r\nHost: h\r\n"
GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
UPGRADE = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
LARGE = 64 * 1024 * 1024  # more than the kernel buffers
Connect = Callable[..., socket.socket]


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the size of the body, or with a large body to ``/large``."""
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    body = bytes(LARGE) if scope["path"] == "/large" else b"%d" % size
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def serving(limits: Limits) -> Iterator[tuple[uvicorn.Server, Connect]]:
    """Yield a server and a function that connects and sends its first bytes in time."""
    config = uvicorn.Config(echo, http=limited(limits), ws="none", lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        stack.callback(thread.join)
        stack.callback(setattr, server, "should_exit", True)
        wait_until(lambda: server.started)
        loop = server.servers[0].get_loop()

        def connect(first: bytes = b"") -> socket.socket:
            is_held, is_sent = threading.Event(), threading.Event()

            def hold() -> None:
                is_held.set()
                is_sent.wait(60)

            loop.call_soon_threadsafe(hold)  # on a slow machine the server's clock would be ahead of the bytes
            assert is_held.wait(60)
            try:
                connection = socket.create_connection(listener.getsockname(), timeout=60)
                stack.enter_context(closing(connection)).sendall(first)
            finally:
                is_sent.set()
            return connection

        yield server, connect


@pytest.fixture
def server() -> Iterator[tuple[uvicorn.Server, Connect]]:
    with serving(QUICK) as found:
        yield found


def answer(connection: socket.socket) -> bytes:
    """Return what the server sends until it closes."""
    received = b""
    try:
        while piece := connection.recv(4096):
            received += piece
    except ConnectionResetError:
        pass
    return received


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nA: " + b"a" * 2000,
        b"GET /" + b"a" * 2000,
        POST + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"a" * 2000,
        POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nA: " + b"a" * 2000,
    ],
    ids=["header", "path", "chunk-extension", "trailer"],
)
def test_oversized_head_is_refused(server: tuple[uvicorn.Server, Connect], sent: bytes) -> None:
    assert answer(server[1](sent)).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(
    ("start", "drop", "status"),
    [
        (b"", b"", b"408"),
        (b"GET / HTTP/1.1\r\nA: ", b"a", b"408"),
        (POST + b"Content-Length: 1000\r\n\r\n", b"a", b"408"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n", b"1;abcdef\r\na\r\n", b"408"),
        (GET, b"\r\n", b"200"),  # empty lines may precede a head
        (UPGRADE, b"a", b"200"),
    ],
    ids=["silent", "head", "body", "chunks", "next-head", "upgrade"],
)
def test_slow_peer_is_disconnected(
    server: tuple[uvicorn.Server, Connect], start: bytes, drop: bytes, status: bytes
) -> None:
    server[0].config.timeout_keep_alive = 0.1
    connection = server[1](start)
    connection.settimeout(0.02)
    received = b""

    def is_closed() -> bool:
        nonlocal received
        with suppress(OSError):  # after a reset the answer can still be read
            connection.sendall(drop)
        try:
            piece = connection.recv(4096)
        except TimeoutError:
            return False
        except OSError:
            return True
        received += piece
        return not piece

    assert any(is_closed() for _ in range(250)), "it may drop bytes for five seconds"
    assert received.startswith(b"HTTP/1.1 " + status)


def test_steady_body_is_read_beyond_first_deadline() -> None:
    with serving(Limits(head_seconds=0.1, transfer_seconds=0.1, bytes_per_second=500)) as (_, connect):  # 100 seconds
        connection = connect(POST + b"Content-Length: 50001\r\nConnection: close\r\n\r\n" + b"a" * 50_000)
        connection.settimeout(0.25)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(60)
        connection.sendall(b"a")
        assert answer(connection).endswith(b"\r\n\r\n50001")


def test_unread_response_is_aborted() -> None:
    with serving(Limits(head_seconds=0.1, transfer_seconds=0.1, bytes_per_second=LARGE * 10)) as (server, connect):
        connection = connect(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n")
        assert connection.recv(1) == b"H"
        wait_until(lambda: not server.server_state.connections, seconds=15)  # less than without these limits


@pytest.mark.parametrize(
    "limits", [Limits(connections=2), Limits(connections_per_address=2)], ids=["all", "one-address"]
)
def test_connections_beyond_limit_are_refused(limits: Limits) -> None:
    with serving(limits) as (server, connect):
        connections = [connect(), connect()]
        wait_until(lambda: len(server.server_state.connections) == 2)
        assert answer(connect()).startswith(b"HTTP/1.1 503 ")
        connections[0].close()
        wait_until(lambda: len(server.server_state.connections) == 1)
        last = connect(GET.replace(b"Host", b"Connection: close\r\nHost"))
        assert answer(last).startswith(b"HTTP/1.1 200 ")
