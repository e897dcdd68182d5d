"""Servers that accept connections and never answer."""

import socket
from contextlib import suppress


def waiting_connections(server: socket.socket) -> int:
    """Close the connections that wait for an answer; return their number."""
    server.setblocking(False)
    found = 0
    with suppress(BlockingIOError):
        while True:
            server.accept()[0].close()
            found += 1
    return found
