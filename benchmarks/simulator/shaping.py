"""Slow, distant links for real connections: local TCP proxies that pace and delay bytes.

All ports of one link share its two rates. A chunk leaves once the rate permits and arrives half a round trip later.
Chunks of several connections alternate, so they share the rate equally.
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

_CHUNK = 8 * 1024
_AHEAD = 64  # chunks in transit before a sender waits; more than half a round trip holds
_IDLE_SECONDS = 0.25
"""Idle time after which a rate restarts. A sender that wakes up earlier was ready before and catches up.

On a busy machine every pause takes longer than requested.
"""


class _Pace:
    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._free_at = 0.0

    async def take(self, size: int) -> None:
        now = asyncio.get_running_loop().time()
        begins_at = now if now - self._free_at > _IDLE_SECONDS else self._free_at
        self._free_at = begins_at + size / self._rate
        if self._free_at > now:
            await asyncio.sleep(self._free_at - now)


class ShapedLink:
    """Ports that put servers of this machine behind a link. Use within :func:`shaping`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, up_rate: float, down_rate: float, round_trip: float) -> None:
        self._loop = loop
        self._up, self._down = _Pace(up_rate), _Pace(down_rate)
        self._delay = round_trip / 2

    def to(self, url: str) -> str:
        """Return the URL of a server of this machine, behind the link."""
        return f"http://127.0.0.1:{self.port_to(urlsplit(url).port)}"

    def port_to(self, port: int | None, *, inbound: bool = False) -> int:
        """Return a port that leads to ``port``; ``inbound``: that is at the link's own end."""
        return asyncio.run_coroutine_threadsafe(self._listen(port, inbound), self._loop).result(timeout=10)

    async def _listen(self, port: int | None, inbound: bool) -> int:
        there, back = (self._down, self._up) if inbound else (self._up, self._down)

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, asyncio.CancelledError):  # the connection ends with the link
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
                await asyncio.gather(self._carry(reader, far_writer, there), self._carry(far_reader, writer, back))

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        return int(server.sockets[0].getsockname()[1])

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pace: _Pace) -> None:
        """Carry the bytes of one direction of one connection until either end closes it."""
        sent: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_AHEAD)

        async def arrive() -> None:
            while True:
                arrives_at, chunk = await sent.get()
                await asyncio.sleep(arrives_at - self._loop.time())
                if not chunk:
                    return
                writer.write(chunk)
                await writer.drain()

        arriving = asyncio.create_task(arrive())
        try:
            while not arriving.done():
                chunk = await reader.read(_CHUNK)
                await pace.take(len(chunk))
                await sent.put((self._loop.time() + self._delay, chunk))
                if not chunk:
                    break
            await arriving
        except OSError:
            arriving.cancel()
        finally:
            writer.close()


@contextlib.contextmanager
def shaping() -> Iterator[asyncio.AbstractEventLoop]:
    """Yield a loop in its own thread for :class:`ShapedLink`; all links end with it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="shaping", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        asyncio.run_coroutine_threadsafe(_end_all(), loop).result(timeout=10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=10)
        loop.close()


async def _end_all() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
