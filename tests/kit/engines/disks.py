"""A disk that can be full."""

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from zoo_compute.node.disk.workspace import MIN_FREE_BYTES


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for one node before its first work."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={3 * MIN_FREE_BYTES}", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a file system")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill_disk(file: Path) -> None:
    with file.open("wb", buffering=0) as content, suppress(OSError):
        while content.write(bytes(4096)):
            pass
