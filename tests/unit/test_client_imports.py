"""The modules that a user of the client loads."""

import subprocess
import sys

import pytest

FORBIDDEN = ("zoo_compute.node.", "zoo_compute.devnet.", "zoo_compute.cli.", "torch.", "numba.", "web3.")
_PROBE = "import sys; {statement}; print(*sorted(sys.modules))"


def loaded(statement: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _PROBE.format(statement=statement)], capture_output=True, text=True, check=True
    )
    return [name for name in done.stdout.split() if f"{name}.".startswith(FORBIDDEN)]


@pytest.mark.parametrize(
    "statement", ["import zoo_compute", "from zoo_compute import Client", "import zoo_compute.client.client"]
)
def test_client_loads_no_node_devnet_or_torch(statement: str) -> None:
    assert loaded(statement) == []


def test_probe_sees_forbidden_modules() -> None:
    assert "zoo_compute.node.execution.frames" in loaded("import zoo_compute.node.execution.frames")
