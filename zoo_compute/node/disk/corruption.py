"""Quarantine of unusable files, so that the node can start without them.

A power cut, a failing disk or an edit can damage any file. Damaged files are renamed to
``<name>.damaged-<UTC time>`` and never deleted, so that the operator can repair them.
"""

import json
import logging
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from zoo_compute.content.blockstore import BlockStore

log = logging.getLogger(__name__)

_UNREADABLE = (IsADirectoryError, PermissionError)
"""Permanent refusals. Others, such as too many open files, are not the file's fault."""

_T = TypeVar("_T")


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
