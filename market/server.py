"""HTTP server of the API: ``python -m market.server``."""

import argparse
import contextlib
import resource
import sys
from collections.abc import Sequence
from dataclasses import replace

import uvicorn

from market.app import create_app
from market.platform.http.bounded import Limits, limited


def configuration(arguments: Sequence[str] | None = None) -> uvicorn.Config:
    """Return the server's configuration from the command line."""
    parser = argparse.ArgumentParser(prog="python -m market.server", description="Serve the market's API.")
    parser.add_argument("--host", default="127.0.0.1", help="listen on this address; default: 127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="listen on this port; 0: any free port; default: 8000")
    parser.add_argument(
        "--stop-seconds", type=int, default=8, help="finish open requests in so many seconds; default: 8"
    )
    parser.add_argument(
        "--behind-proxy",
        action="store_true",
        help="take client addresses from X-Forwarded-For; only if no one but your proxy reaches the port",
    )
    options = parser.parse_args(arguments)
    limits = Limits()
    if options.behind_proxy:
        limits = replace(limits, connections_per_address=None)  # all are the proxy's, which has its own limit
    return uvicorn.Config(
        create_app,
        factory=True,
        host=options.host,
        port=options.port,
        http=limited(limits),
        ws="none",
        access_log=False,  # the middleware logs each request
        proxy_headers=options.behind_proxy,
        forwarded_allow_ips="*",
        timeout_graceful_shutdown=options.stop_seconds,
    )


def main() -> int:
    """Serve until SIGTERM or SIGINT; exit status 3 if the start fails."""
    config = configuration()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # many systems start with 1,024 open files
    server = uvicorn.Server(config)
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again after its shutdown
        server.run()
    return 0 if server.started else 3


if __name__ == "__main__":
    sys.exit(main())
