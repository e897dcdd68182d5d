"""HTTP protocol of the server with bounded heads, bodies, responses and connections.

uvicorn alone buffers a head of any size and waits for slow peers without limit. Here a connection has a deadline in
each phase, and one timer checks it. A request costs no timer of its own.
"""

import asyncio
import math
from collections import Counter
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from weakref import WeakKeyDictionary

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

_LINGER_SECONDS = 1.0  # for a refusal to reach its peer
_connections_by_address: WeakKeyDictionary[ServerState, Counter[str]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server's peers. Without ``connections_per_address`` only the total counts.

    A body, and the reading of a response, may take ``transfer_seconds`` plus their bytes over ``bytes_per_second``.
    """

    head_bytes: int = 32 * 1024
    head_seconds: float = 10.0
    transfer_seconds: float = 20.0
    bytes_per_second: int = 4096
    connections: int = 4_000
    connections_per_address: int | None = 256


class BoundedProtocol(HttpToolsProtocol):
    """One connection. ``limited`` makes the subclass of a server."""

    limits = Limits()

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._by_address = _connections_by_address.setdefault(server_state, Counter())
        self._unparsed_bytes = 0  # received since the last complete head or part of a body
        self._is_in_body = False
        self._read_until = self._written_until = math.inf
        self._timer: asyncio.TimerHandle | None = None

    @property
    def _host(self) -> str:
        return "" if self.client is None else self.client[0]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._by_address[self._host] += 1
        most_of_address = self.limits.connections_per_address
        if len(self.connections) > self.limits.connections or (
            most_of_address is not None and self._by_address[self._host] > most_of_address
        ):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
            return
        self._read_until = self.loop.time() + self.limits.head_seconds
        self._check_deadlines()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()
        self._by_address[self._host] -= 1
        if not self._by_address[self._host]:
            del self._by_address[self._host]

    def data_received(self, data: bytes) -> None:
        while data and not self.transport.is_closing():
            room = self.limits.head_bytes - self._unparsed_bytes
            piece, data = data[:room], data[room:]
            self._unparsed_bytes += len(piece)
            super().data_received(piece)
            if self._unparsed_bytes >= self.limits.head_bytes and not self.transport.is_closing():
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def on_headers_complete(self) -> None:
        self._unparsed_bytes = 0
        self._is_in_body = True
        self._read_until = self.loop.time() + self.limits.transfer_seconds
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unparsed_bytes = 0
        self._read_until += len(body) / self.limits.bytes_per_second
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._is_in_body = False
        self._expect_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_in_body:
            self._expect_head()

    def _expect_head(self) -> None:
        """Set the deadline of the next head, which starts with the response to the last one."""
        is_answered = self.cycle.response_complete and not self.pipeline
        wait = self.timeout_keep_alive + self.limits.head_seconds
        self._read_until = self.loop.time() + wait if is_answered else math.inf

    def pause_writing(self) -> None:
        super().pause_writing()
        unread = self.transport.get_write_buffer_size()
        self._written_until = self.loop.time() + self.limits.transfer_seconds + unread / self.limits.bytes_per_second

    def resume_writing(self) -> None:
        super().resume_writing()
        self._written_until = math.inf

    def _check_deadlines(self) -> None:
        now = self.loop.time()
        if now >= self._written_until:
            self.transport.abort()
            return
        if self.flow.read_paused or self.flow.write_paused:  # the peer waits for this server, or has its other deadline
            self._read_until = max(self._read_until, now + self.limits.transfer_seconds)
        if now >= self._read_until:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
            return
        # Every deadline is set at least ``head_seconds`` ahead.
        self._timer = self.loop.call_later(self.limits.head_seconds, self._check_deadlines)

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer unless a response has begun, and close the connection."""
        has_begun = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        if has_begun or self.pipeline or self.transport.is_closing():
            self.transport.abort()
            return
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        self.transport.write(head.encode())
        self.transport.close()
        self._timer = self.loop.call_later(_LINGER_SECONDS, self.transport.abort)


def limited(limits: Limits) -> type[BoundedProtocol]:
    """Return the protocol of a server with these limits."""
    return type("LimitedProtocol", (BoundedProtocol,), {"limits": limits})
