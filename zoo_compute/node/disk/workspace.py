"""Directory of a node: durable records and a cache of inputs.

- ``units/<job>/<round>-<slot>/``: boundary states and result of a unit, kept for disputes
- ``slots/<job>/<slot>/<cid>``: replica states that this node's units produced; the next unit starts from the newest
- ``acknowledgements/<id>.json``: the market's inclusion acknowledgements (``acknowledgements.py``)
- ``traces/<unit id>.json``: traces of signed roots, for disputes (``traces.py``)
- ``traces/windows/<unit id>.json``: proofs of inclusion, kept to reject disputes of old units
- ``disputes/<id>.json``: open disputes of this node's units (``defence.py``)
- ``verdicts/<id>-<draw>.json``: verdicts that this node signed as a referee (``referee.py``)
- ``leases/<id>.json``: held leases, resumed after a crash
- ``store/``: blocks of pinned checkpoints and of recent transfers, which resume from them
- ``checkpoints/<cid>.json``: pinned files of a checkpoint, and its job
- ``over/<job>.json``: first time at which a job was seen to be over (``finished.py``)
- ``files/<cid>``: inputs, fetched and verified; verified again after a restart
- ``executor/``: log and temporary files of the training process; emptied at every start
- ``network.json``: last known network parameters (``background_services.py``)
- ``sessions.json``: ids of the last processes, by which the market recognises a restarted node
- ``lock``: held by the running node (``files.py``)
- ``*.damaged-<time>``: quarantined files (``files.py``); never read
"""

import errno
import logging
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from weakref import WeakValueDictionary

from training_gym.spec.errors import GymError
from training_gym.spec.manifests import MAX_MANIFEST_BYTES
from training_gym.units.checkpoint import CheckpointManifest
from zoo_compute.content.blockstore import BlockNotFound, BlockStore
from zoo_compute.content.gateway import GatewayClient
from zoo_compute.content.packs import force_to_disk
from zoo_compute.node.disk.files import (
    ACKNOWLEDGEMENTS,
    DISPUTES,
    TRACES,
    VERDICTS,
    make_folder,
    opened_store,
    quarantine,
    read_json,
    write_file,
    write_json,
)
from zoo_compute.node.execution.tasks import TaskError
from zoo_compute.node.market.calls import Lease
from zoo_protocol.content.cid import ContentError, parse
from zoo_protocol.content.unixfs import cid_of_file

MAX_INPUT_BYTES = 1 << 37

MIN_FREE_BYTES = 32 << 20
"""Minimum free space to lease work. With less, tasks fail, which counts against the node."""

_FILE_RETENTION_SECONDS = 3600.0
_BLOCK_RETENTION_SECONDS = 86400.0
_COLLECT_SECONDS = 3600.0
_MAX_SESSIONS = 8

_OWN_FOLDERS = ("units", "slots", "leases", "store", "checkpoints", "files", "executor", "over")

_JOB_ID = re.compile("0x[0-9a-f]{64}")
log = logging.getLogger(__name__)


class Workspace:
    """Directory of one node, under the lock of :mod:`zoo_compute.node.disk.files`.

    The store opens on first use: disputes need no disk space for it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self.network = self._root / "network.json"
        self.executor = self._root / "executor"
        self.acknowledgements, self.traces = self._root / ACKNOWLEDGEMENTS, self._root / TRACES
        self.disputes, self.verdicts = self._root / DISPUTES, self._root / VERDICTS
        shutil.rmtree(self.executor, ignore_errors=True)
        for name in (*_OWN_FOLDERS, ACKNOWLEDGEMENTS, TRACES, DISPUTES, VERDICTS):
            make_folder(self._root / name)
        self._guard = threading.Lock()
        self._making: WeakValueDictionary[str, threading.RLock] = WeakValueDictionary()
        self._verified = set[str]()  # CIDs of files that this process has verified
        self._store: BlockStore | None = None
        self._collect_at = 0.0

    @property
    def store(self) -> BlockStore:
        """Block store. It and its methods raise OSError, sqlite3.Error: the disk refuses."""
        with self._guard:
            if self._store is None:
                self._store = opened_store(self._root / "store")
            return self._store

    def open_store(self) -> None:
        """Open the store and free unneeded blocks.

        Raises:
            OSError, sqlite3.Error: as :attr:`store`, or less than ``MIN_FREE_BYTES`` is free.
        """
        _ = self.store
        self.collect()
        if shutil.disk_usage(self._root).free < MIN_FREE_BYTES:
            raise OSError(errno.ENOSPC, f"less than {MIN_FREE_BYTES >> 20} MiB are free")

    def unit(self, job_id: str, round_: int, slot: int) -> Path:
        """Return the directory of a unit, created if missing. Raises TaskError for an invalid id."""
        _require_place(job_id, round_, slot)
        path = self._root / "units" / job_id / f"{round_}-{slot}"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def kept_slot_state(self, job_id: str, slot: int, cid: str) -> Path | None:
        """Return a replica state of this node; None if it is missing, or damaged and quarantined."""
        path = self.slot_state(job_id, slot, cid)
        return path if _is_whole(path, cid) else None

    def slot_state(self, job_id: str, slot: int, cid: str) -> Path:
        """Return the path of a replica state, present or not. Raises TaskError, InvalidCid."""
        _require_place(job_id, slot)
        return self._root / "slots" / job_id / str(slot) / str(parse(cid))

    def keep_slot_state(self, job_id: str, slot: int, file: Path) -> str:
        """Move a unit's replica state file to its place; returns its CID."""
        with file.open("rb") as content:
            cid = cid_of_file(content)
            os.fsync(content.fileno())
        path = self.slot_state(job_id, slot, cid)
        path.parent.mkdir(parents=True, exist_ok=True)
        file.replace(path)
        force_to_disk(path.parent)
        return cid

    def file(self, cid: str) -> Path:
        """Return the path of a CID's file, present or not. Raises InvalidCid."""
        return self._root / "files" / str(parse(cid))

    def local_path(self, cid: str) -> Path | None:
        """Return the file of a CID if present. Files of an earlier process are verified first."""
        path = self.file(cid)
        with self.single_flight(cid):
            if not (path.exists() if cid in self._verified else _is_whole(path, cid)):
                return None
            self._verified.add(cid)
            path.touch()
            return path

    def fetch(self, gateway: GatewayClient, cid: str, *, max_bytes: int = MAX_INPUT_BYTES) -> Path:
        """Return a CID's file, downloaded if missing; raises as ``GatewayClient.download``."""
        with self.single_flight(cid):
            path = self.local_path(cid)
            if path is None:
                path = self.file(cid)
                gateway.download(cid, path, max_bytes=max_bytes)
                self._verified.add(cid)
            return path

    def has_file_of(self, min_bytes: int) -> bool:
        """Return whether an input of at least that size is present."""
        for path in (self._root / "files").iterdir():
            with suppress(FileNotFoundError):  # renamed or removed by another thread
                if path.stat().st_size >= min_bytes:
                    return True
        return False

    def add_file(self, cid: str, content: bytes) -> None:
        """Store the file of a CID."""
        with self.single_flight(cid):
            write_file(self.file(cid), content)
            self._verified.add(cid)

    def take(self, made: Path, cid: str) -> bool:
        """Move a file to its CID's path; False if its content has another CID, and it stays."""
        with self.single_flight(cid):
            with made.open("rb") as content:
                if cid_of_file(content) != cid:
                    return False
            made.replace(self.file(cid))
            self._verified.add(cid)
            return True

    @contextmanager
    def single_flight(self, cid: str) -> Iterator[None]:
        """Serialise threads that create the file of a CID; later ones find it present."""
        with self._guard:
            lock = self._making.setdefault(cid, threading.RLock())
        with lock:
            yield

    def keep(self, checkpoint: str, cids: Sequence[str], job_id: str) -> None:
        """Record the pinned files of a job's checkpoint. Raises InvalidCid."""
        write_json(self._root / "checkpoints" / f"{parse(checkpoint)}.json", {"cids": list(cids), "job_id": job_id})

    def kept_jobs(self) -> set[str]:
        """Return the jobs of which a checkpoint or a replica state is present."""
        found = self._checkpoints_by_job().keys() | {path.name for path in (self._root / "slots").iterdir()}
        return {job_id for job_id in found if _JOB_ID.fullmatch(job_id)}

    def job_ended_at(self, job_id: str, now: int) -> int:
        """Return when the job was first seen to be over (chain time, Unix), by default ``now``."""
        path = self._root / "over" / f"{job_id}.json"
        since = read_json(path, lambda note: int(note["since"]))
        if since is None:
            write_json(path, {"since": now})
        return now if since is None else since

    def release_job(self, job_id: str) -> None:
        """Release the checkpoints and replica states of a finished job."""
        _remove(self._root / "slots" / job_id)  # first, because it needs no disk space
        self.release(self._checkpoints_by_job().get(job_id, []))
        (self._root / "over" / f"{job_id}.json").unlink(missing_ok=True)

    def _checkpoints_by_job(self) -> dict[str, list[str]]:
        found = dict[str, list[str]]()
        for path in (self._root / "checkpoints").glob("*.json"):
            if (job_id := read_json(path, lambda note: str(note.get("job_id", "")))) is not None:
                found.setdefault(job_id or self._job_of(path.stem), []).append(path.stem)
        return found

    def _job_of(self, checkpoint: str) -> str:
        """Return the job in the checkpoint's manifest; "" without one."""
        try:
            manifest = b"".join(self.store.read(parse(checkpoint), max_bytes=MAX_MANIFEST_BYTES))
            return CheckpointManifest.from_bytes(manifest).job_id
        except (BlockNotFound, ContentError, GymError):  # for example a replica state
            return ""

    def release(self, checkpoints: Iterable[str]) -> None:
        """Unpin files that only these checkpoints need; unknown checkpoints are ignored.

        Records are removed last, so that a release resumes after a crash.
        """
        folder = self._root / "checkpoints"
        released = {folder / f"{parse(checkpoint)}.json" for checkpoint in checkpoints}
        noted = {
            path: read_json(path, lambda note: {str(parse(cid)) for cid in note["cids"]})
            for path in folder.glob("*.json")
        }
        files = {path: cids for path, cids in noted.items() if cids is not None}
        gone = set[str]().union(*(cids for path, cids in files.items() if path in released))
        kept = set[str]().union(*(cids for path, cids in files.items() if path not in released))
        for cid in gone - kept:
            self.store.unpin(parse(cid))
        for path in files.keys() & released:
            path.unlink()

    def store_lease(self, lease: Lease) -> None:
        """Record a lease, to be resumed after a crash."""
        write_json(self._lease_file(lease), asdict(lease))

    def forget(self, lease: Lease) -> None:
        self._lease_file(lease).unlink(missing_ok=True)

    def stored_leases(self) -> list[Lease]:
        """Return the leases that the last process held."""
        found = (read_json(path, Lease.from_dict) for path in (self._root / "leases").glob("*.json"))
        return [lease for lease in found if lease is not None]

    def new_session(self) -> tuple[str, list[str]]:
        """Return a random id for this process, and those of the last processes, the oldest first."""
        path = self._root / "sessions.json"
        before = read_json(path, lambda note: [str(one) for one in note["sessions"]]) or []
        session = secrets.token_hex(16)
        try:
            write_json(path, {"sessions": [*before, session][-_MAX_SESSIONS:]})
        except OSError as error:  # until a timeout, the market takes a restarted node for another one
            log.warning("session_not_stored path=%s error=%s", path, error)
        return session, before

    def tidy(self, keep_hours: float, slot_state_seconds: float = 0.0, now: float | None = None) -> None:
        """Remove units older than ``keep_hours``, inputs unused for an hour, and old replica states.

        Units and replica states are timed by ``now`` (Unix seconds; None is this machine's clock), which does not jump.

        Replica states are kept for at least ``slot_state_seconds`` since a unit last started from them, because
        retraining needs them while a unit can be disputed. The newest one always stays: its replica can wait long.
        """
        here = time.time()
        now = here if now is None else now
        states = sorted((self._root / "slots").glob("*/*/*"), key=lambda path: path.stat().st_mtime)
        for path in states[:-1]:
            if now - path.stat().st_mtime > max(keep_hours * 3600, slot_state_seconds):
                _remove(path)
        for path in (self._root / "files").iterdir():
            if here - path.stat().st_mtime > _FILE_RETENTION_SECONDS:
                _remove(path)
        for path in (self._root / "units").glob("*/*"):
            if now - path.stat().st_mtime > keep_hours * 3600:
                _remove(path)

    def collect(self) -> None:
        """Remove unpinned blocks older than a day, at most once per hour; fetches wait."""
        if time.monotonic() < self._collect_at:
            return
        self._collect_at = time.monotonic() + _COLLECT_SECONDS
        try:
            self.store.collect(older_than=_BLOCK_RETENTION_SECONDS)
        except (BlockNotFound, ContentError) as error:
            log.warning("blocks_not_collected reason=damaged_checkpoint error=%s", error)

    def _lease_file(self, lease: Lease) -> Path:
        return self._root / "leases" / f"{lease.id}.json"


def _require_place(job_id: str, *numbers: int) -> None:
    """Raise TaskError unless the values are a unit's place: they become part of a path."""
    if not _JOB_ID.fullmatch(job_id) or any(type(number) is not int for number in numbers):
        raise TaskError("invalid_task", "task.job_id", f"{job_id!r:.80}, {numbers!r:.80} is not the place of a unit")


def _is_whole(path: Path, cid: str) -> bool:
    """Return whether a file is present with this CID; a file with another one is quarantined."""
    try:
        with path.open("rb") as content:
            found = cid_of_file(content)
    except FileNotFoundError:
        return False
    except (IsADirectoryError, PermissionError) as error:
        quarantine(path, error)
        return False
    if found != cid:
        quarantine(path, f"content has CID {found}")
    return found == cid


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
