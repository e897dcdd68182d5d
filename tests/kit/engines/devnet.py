"""A devnet as its users start it: from the command line, in a directory of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
ENGINE_VARIABLES = ("ZOO_DATABASE_URL", "ZOO_REDIS_URL", "ZOO_RPC_URL", "ZOO_IPFS_API")


@dataclass(frozen=True)
class Devnet:
    """One devnet directory and the command that runs it."""

    directory: Path

    def command(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "zoo_compute", "devnet", *arguments, "--directory", str(self.directory)]
        done = subprocess.run(argv, cwd=ROOT, env=clean(), capture_output=True, text=True, timeout=600, check=False)
        assert not check or done.returncode == 0, f"{argv} ended with {done.returncode}:\n{done.stderr}"
        return done

    def up(self, *options: str) -> dict[str, Any]:
        info: dict[str, Any] = json.loads(self.command("up", "--detach", "--json", *options).stdout)
        return info

    def pids(self) -> dict[str, int]:
        """Return the running processes by part, also while the stack recovers."""
        state = json.loads((self.directory / "state.json").read_text())
        return {name: part["identity"]["pid"] for name, part in state["parts"].items()}


def clean() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ENGINE_VARIABLES}
    return kept | {"PYTHONPATH": str(ROOT)}


@pytest.fixture
def devnet(tmp_path: Path) -> Iterator[Devnet]:
    devnet = Devnet(tmp_path / "devnet")
    yield devnet
    devnet.command("down")
