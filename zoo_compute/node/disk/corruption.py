"""What of a node's directory cannot be used: moved out of the way, so that the node starts and goes on with the rest.

A power cut, a failing disk or somebody's hand may leave any of its files cut, changed or unreadable. Nothing is removed
for that: whoever can mend such a file finds it beside its place, as ``<name>.damaged-<UTC time>``.
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
"""Of what a system refuses, that which stays so. Too many open files, say, are no fault of the file that is opened."""


_T = TypeVar("_T")


def quarantine(path: Path, problem: object) -> None:
    """Move what cannot be used out of the way, and say so.

    Raises:
        OSError: the directory cannot be written to.
    """
    aside = path.with_name(f"{path.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
    try:
        path.rename(aside)
    except FileNotFoundError:  # another thread was first
        return
    log.error("%s cannot be used (%s): it is %s now, and the node goes on without it", path, problem, aside.name)


def read_json(path: Path, make: Callable[[Any], _T]) -> _T | None:
    """What ``make`` makes of a JSON file; None if it is not there, or cannot be used: then it is set aside.

    Args:
        make: raises ValueError, LookupError, TypeError or AttributeError if the document is none of its own.

    Raises:
        OSError: the system refuses to open it for now, or to set it aside.
    """
    try:
        return make(json.loads(path.read_bytes()))
    except FileNotFoundError:  # another thread or process has just removed it
        return None
    except (*_UNREADABLE, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        quarantine(path, f"{type(error).__name__}: {error}")
        return None


def make_folder(path: Path) -> None:
    """Have a folder there; anything else in its place is set aside. Raises OSError."""
    if path.exists() and not path.is_dir():
        quarantine(path, "it is no folder")
    path.mkdir(parents=True, exist_ok=True)


def opened_store(folder: Path) -> BlockStore:
    """The store in a folder; a damaged one is set aside as a whole: without their index, its packs are of no use."""
    try:
        _require_index(folder)
        store = BlockStore(folder)
        store.check()
        store.discard_unfinished()
    except sqlite3.OperationalError:  # a full disk, say
        raise
    except (sqlite3.DatabaseError, IsADirectoryError, FileExistsError) as error:
        quarantine(folder, error)
        log.error("the copies of checkpoints that it held are lost here; remove it once you need the room")
        return BlockStore(folder)
    return store


def _require_index(folder: Path) -> None:
    """Where there is none of what is in the packs, a new one would have them all removed."""
    for path in folder.glob("index.*"):
        if path.is_dir():
            raise IsADirectoryError(f"{path.name} is a folder")
    index = folder / "index.sqlite"
    if any(folder.glob("packs/*")) and not (index.exists() and index.stat().st_size):
        raise sqlite3.DatabaseError("index.sqlite is empty")
