"""Settings that the market's processes refuse to start with."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ONE, ANOTHER = "0x" + "01" * 32, "0x" + "02" * 32
PROCESSES = {
    "api": "from market.app import create_app; create_app()",
    "worker": "import worker.main",
    "webhooks": "import worker.webhooks",
    "tasks": "from worker.context import context; context()",
    "clock": "import worker.beat",
}


def start(tmp_path: Path, process: str, **variables: str) -> subprocess.CompletedProcess[str]:
    unused = dict.fromkeys(("ZOO_RPC_URL", "ZOO_IPFS_API", "ZOO_GATEWAY_URL"), "http://unused")
    common = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "ZOO_DEPLOYMENT_FILE": "none"}
    stores = {"ZOO_DATABASE_URL": "postgresql://unused", "ZOO_REDIS_URL": "redis://unused"}
    return subprocess.run(
        [sys.executable, "-c", PROCESSES[process]],
        cwd=tmp_path,
        env=common | unused | stores | variables,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    "process",
    ["clock", *(pytest.param(name, marks=pytest.mark.long) for name in ("api", "worker", "webhooks", "tasks"))],
)
def test_main_network_requires_named_environment_classes(tmp_path: Path, process: str) -> None:
    done = start(tmp_path, process, ZOO_NETWORK="mainnet", ZOO_ENVIRONMENT_CLASSES="")
    assert done.returncode != 0
    assert "ZOO_ENVIRONMENT_CLASSES is empty" in done.stderr
    assert "zoo-compute node environment" in done.stderr


@pytest.mark.parametrize(
    "variables",
    [{"ZOO_NETWORK": "mainnet", "ZOO_ENVIRONMENT_CLASSES": f"{ONE},{ANOTHER}"}, {"ZOO_ENVIRONMENT_CLASSES": ""}],
)
def test_process_starts_with_class_names_or_on_devnet(tmp_path: Path, variables: dict[str, str]) -> None:
    done = start(tmp_path, "clock", **variables)
    assert done.returncode == 0, done.stderr
