"""Files of a node's directory: atomic writes, quarantine of unusable files, the lock.

A power cut, a failing disk or an edit can damage any file. Damaged files are renamed to
``<name>.damaged-<UTC time>`` and never deleted, so that the node starts without them and the operator can repair them.
"""

import errno
import fcntl
import json
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from zoo_compute.base.errors import ConfigError
from zoo_compute.content.blockstore import BlockStore
from zoo_compute.content.packs import force_to_disk

log = logging.getLogger(__name__)

ACKNOWLEDGEMENTS, TRACES, DISPUTES, VERDICTS = "acknowledgements", "traces", "disputes", "verdicts"
"""Folders that commands also read; ``workspace.py`` describes them."""

DISK_REFUSES = (OSError, sqlite3.Error)
"""Errors of a full or failing disk, from files and from the block store's index."""

_UNREADABLE = (IsADirectoryError, PermissionError)
"""Permanent refusals. Others, such as too many open files, are not the file's fault."""

_T = TypeVar("_T")


def is_disk_full(error: Exception) -> bool:
    """Return whether ``error``, one of :data:`DISK_REFUSES`, can mean a full disk."""
    if isinstance(error, sqlite3.OperationalError):
        return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON file atomically, as :func:`write_file` does."""
    write_file(path, json.dumps(document).encode())


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically: after a power cut it is complete or absent."""
    partial = path.with_name(path.name + ".part")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    force_to_disk(path.parent)  # the name must be durable too: a signed decision must not be made again


def quarantine(path: Path, problem: object) -> None:
    """Rename an unusable file or folder and log it. Raises OSError: read-only directory."""
    aside = path.with_name(f"{path.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
    try:
        path.rename(aside)
    except FileNotFoundError:  # another thread renamed it
        return
    log.error("file_quarantined path=%s problem=%s moved_to=%s", path, problem, aside.name)


def read_json(path: Path, make: Callable[[Any], _T]) -> _T | None:
    """Return ``make`` of a JSON file; None if it is missing, or unusable and quarantined.

    Args:
        make: raises ValueError, LookupError, TypeError or AttributeError for an invalid document.

    Raises:
        OSError: a temporary refusal, or the quarantine failed.
    """
    try:
        return make(json.loads(path.read_bytes()))
    except FileNotFoundError:  # another thread or process removed it
        return None
    except (*_UNREADABLE, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        quarantine(path, f"{type(error).__name__}: {error}")
        return None


def make_folder(path: Path) -> None:
    """Create a folder; a file in its place is quarantined. Raises OSError."""
    if path.exists() and not path.is_dir():
        quarantine(path, "not a folder")
    path.mkdir(parents=True, exist_ok=True)


def opened_store(folder: Path) -> BlockStore:
    """Open the store in a folder; quarantine a damaged one as a whole."""
    try:
        _require_index(folder)
        store = BlockStore(folder)
        store.check()
        store.discard_unfinished()
    except sqlite3.OperationalError:  # for example a full disk
        raise
    except (sqlite3.DatabaseError, IsADirectoryError, FileExistsError) as error:
        quarantine(folder, error)
        log.error("checkpoint_copies_lost folder=%s", folder)
        return BlockStore(folder)
    return store


def _require_index(folder: Path) -> None:
    """Raise if packs exist without an index: opening the store would then delete them."""
    for path in folder.glob("index.*"):
        if path.is_dir():
            raise IsADirectoryError(f"{path.name} is a folder")
    index = folder / "index.sqlite"
    if any(folder.glob("packs/*")) and not (index.exists() and index.stat().st_size):
        raise sqlite3.DatabaseError("index.sqlite is empty")


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
