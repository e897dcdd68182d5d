"""API and workers as processes of their own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from market.settings import Settings

ROOT = Path(__file__).parents[3]


def environment(settings: Settings, **more: str) -> dict[str, str]:
    names = (
        "database_url",
        "redis_url",
        "rpc_url",
        "ipfs_api",
        "gateway_url",
        "deployment_file",
        "domain",
        "public_url",
    )
    own = {f"ZOO_{name.upper()}": str(getattr(settings, name)) for name in names}
    keys = {"ZOO_OPERATOR_KEY": "0x" + "11" * 32, "ZOO_ACKNOWLEDGER_KEY": "0x" + "22" * 32}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return kept | own | keys | {"PYTHONPATH": str(ROOT)} | more


@contextmanager
def running(arguments: list[str], env: dict[str, str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, "-m", *arguments], cwd=ROOT, env=env, stdout=output, stderr=output)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(120)


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz").status_code == 200
    except httpx.TransportError:
        return False
