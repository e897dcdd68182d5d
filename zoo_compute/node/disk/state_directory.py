"""A node's directory as seen without opening its workspace: who holds it, and where its records lie."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zoo_compute.base.errors import ConfigError
from zoo_compute.node.disk.corruption import quarantine


@contextmanager
def used_alone(root: Path) -> Iterator[None]:
    """Hold a node's directory while the block runs: a second node there would empty it under the first one's hands.

    Raises:
        ConfigError: ``state-dir-in-use``.
        OSError: it cannot be written to.
    """
    root.mkdir(parents=True, exist_ok=True)
    lock = root / "lock"
    if lock.is_dir():
        quarantine(lock, "it is a folder")
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


def acknowledgements_in(state_dir: Path) -> Path:
    """Where a node with that state directory keeps the market's promises."""
    return state_dir / "acknowledgements"


def traces_in(state_dir: Path) -> Path:
    """Where a node with that state directory keeps the traces of its units."""
    return state_dir / "traces"


def disputes_in(state_dir: Path) -> Path:
    """Where a node with that state directory notes the disputes of its units."""
    return state_dir / "disputes"


def verdicts_in(state_dir: Path) -> Path:
    """Where a node with that state directory keeps the verdicts that it signed as a referee."""
    return state_dir / "verdicts"
