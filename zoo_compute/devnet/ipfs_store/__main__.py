"""Embedded IPFS block store: ``python -m zoo_compute.devnet.ipfs_store``."""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import uvicorn
import uvloop
from starlette.types import ASGIApp

from zoo_compute.content.blockstore import BlockStore
from zoo_compute.devnet.ipfs_store import gateway, rpc

HOST = "127.0.0.1"
DEFAULT_MAX_FILE_BYTES = 1 << 37  # only the market uses the RPC, with its own limits


class _Server(uvicorn.Server):
    """Server without signal handlers: two servers share this process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _server(application: ASGIApp) -> _Server:
    config = uvicorn.Config(
        application, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=1
    )
    return _Server(config)


def _listen(port: int) -> socket.socket:
    listener = socket.create_server((HOST, port), backlog=128)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it
    listener.setblocking(False)
    return listener


def _write_port_file(path: Path, *, rpc_port: int, gateway_port: int) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_text(json.dumps({"rpc_port": rpc_port, "gateway_port": gateway_port, "pid": os.getpid()}))
    partial.replace(path)


async def serve(arguments: argparse.Namespace) -> None:
    """Serve both ports until SIGTERM or SIGINT.

    The port file exists while both ports accept connections. After a crash a stale one remains; check its ``pid``.

    Raises:
        OSError: a port is taken or the directory is not writable.
    """
    arguments.port_file.unlink(missing_ok=True)
    store = BlockStore(arguments.directory)
    store.discard_unfinished()
    listeners = [_listen(arguments.rpc_port), _listen(arguments.gateway_port)]
    servers = [
        _server(rpc.application(store, max_file_bytes=arguments.max_file_bytes)),
        _server(gateway.application(store)),
    ]

    def stop() -> None:
        for server in servers:
            server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    rpc_port, gateway_port = (listener.getsockname()[1] for listener in listeners)
    _write_port_file(arguments.port_file, rpc_port=rpc_port, gateway_port=gateway_port)
    try:
        await asyncio.gather(
            *(server.serve(sockets=[listener]) for server, listener in zip(servers, listeners, strict=True))
        )
    finally:
        arguments.port_file.unlink(missing_ok=True)


def main() -> int:
    """Parse the command line and serve. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m zoo_compute.devnet.ipfs_store", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="keep blocks and pins here")
    parser.add_argument("--port-file", type=Path, required=True, help="write both ports and the pid here")
    parser.add_argument("--rpc-port", type=int, default=0, help="listen on this port; 0: any free port")
    parser.add_argument("--gateway-port", type=int, default=0, help="listen on this port; 0: any free port")
    parser.add_argument("--max-file-bytes", type=int, default=DEFAULT_MAX_FILE_BYTES, help="limit each added file")
    try:
        uvloop.run(serve(parser.parse_args()))
    except OSError as error:
        print(f"ipfs_store: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
