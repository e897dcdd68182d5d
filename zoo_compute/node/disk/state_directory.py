"""Paths and lock of a node's directory, usable without opening its workspace."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zoo_compute.base.errors import ConfigError
from zoo_compute.node.disk.corruption import quarantine

ACKNOWLEDGEMENTS, TRACES, DISPUTES, VERDICTS = "acknowledgements", "traces", "disputes", "verdicts"
"""Folders that commands also read; ``workspace.py`` describes them."""


@contextmanager
def lock_state_directory(root: Path) -> Iterator[None]:
    """Lock a node's directory while the block runs: two nodes would delete each other's files.

    Raises:
        ConfigError: ``state-dir-in-use``.
        OSError: the directory cannot be written.
    """
    root.mkdir(parents=True, exist_ok=True)
    lock = root / "lock"
    if lock.is_dir():
        quarantine(lock, "a folder")
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                "state-dir-in-use",
                f"another node runs in {root}",
                remedy="Give each node a --state-dir and a wallet of its own.",
            ) from error
        yield
