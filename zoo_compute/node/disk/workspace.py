"""A node's directory: what it must keep through a crash, and what it can fetch again.

``units/<job>/<round>-<slot>/``  the states that a unit's segments start from, and its result: kept for challenges
``slots/<job>/<slot>/<cid>``     slot states that units of this node handed on: the slot's next unit starts from the
                                 newest, and a challenge may ask for the others
``acknowledgements/<id>.json``   the market's promises to include what was delivered (``acknowledgements.py``)
``traces/<unit id>.json``        the states that each signed root is of, to be shown in a dispute (``traces.py``)
``disputes/<id>.json``           disputes of this node's units that are not over (``disputes.py``)
``verdicts/<id>-<draw>.json``    what this node signed as a referee of disputes (``referee.py``)
``leases/<id>.json``             leases at hand, taken up again after a crash
``store/``                       blocks of pinned checkpoints, and those fetched lately: an interrupted transfer
                                 continues from them, also after a restart
``checkpoints/<cid>.json``       which pinned files belong to which checkpoint, and to which job
``over/<job>.json``              since when a job is over of which something is kept (``finished.py``)
``files/<cid>``                  inputs, fetched and verified; what an earlier process left is verified again
``executor/``                    the training process's log and temporary files; emptied at every start
``network.json``                 the network as the market told it last (``watching.py``)
``sessions.json``                ids of the last processes here, by which the market knows a node that starts again
``lock``                         held by the node that uses the directory (``state_directory.py``)
``*.damaged-<time>``             what could not be used, set aside (``damage.py``); nothing needs it
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
from pathlib import Path
from weakref import WeakValueDictionary

from training_gym.spec.errors import GymError
from training_gym.spec.manifests import MAX_MANIFEST_BYTES
from training_gym.units.checkpoint import CheckpointManifest
from zoo_compute.content.blockstore import BlockNotFound, BlockStore
from zoo_compute.content.gateway import GatewayClient
from zoo_compute.content.packs import force_to_disk
from zoo_compute.node.disk.corruption import make_folder, opened_store, quarantine, read_json
from zoo_compute.node.disk.durable_files import write_file, write_json
from zoo_compute.node.disk.state_directory import acknowledgements_in, disputes_in, traces_in, verdicts_in
from zoo_compute.node.execution.tasks import TaskError
from zoo_compute.node.market.calls import Lease
from zoo_protocol.content.cid import ContentError, parse
from zoo_protocol.content.unixfs import cid_of_file

MAX_INPUT_BYTES = 1 << 36


LEAST_ROOM = 32 << 20
"""Bytes. With less, whatever a node takes on it gives up again, which counts against it."""


_FILES_KEPT_SECONDS = 3600.0


_BLOCKS_KEPT_SECONDS = 86400.0


_COLLECT_SECONDS = 3600.0


_SESSIONS_KEPT = 8


_FOLDERS = (
    "units",
    "slots",
    "leases",
    "store",
    "checkpoints",
    "files",
    "executor",
    "acknowledgements",
    "traces",
    "disputes",
    "verdicts",
    "over",
)


_JOB_ID = re.compile("0x[0-9a-f]{64}")


log = logging.getLogger(__name__)


class Workspace:
    """The directory of one node, which uses it alone (:func:`zoo_compute.node.disk.state_directory.used_alone`).

    Its store is opened when it is first used: disputes can be looked after without the room that it takes.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        shutil.rmtree(self._root / "executor", ignore_errors=True)
        for name in _FOLDERS:
            make_folder(self._root / name)
        self._guard = threading.Lock()
        self._making: WeakValueDictionary[str, threading.RLock] = WeakValueDictionary()
        self._whole = set[str]()  # CIDs of files that this process has verified
        self._store: BlockStore | None = None
        self._collect_at = 0.0

    @property
    def store(self) -> BlockStore:
        """The blocks. Raises OSError, sqlite3.Error: the disk refuses, now or in any of its methods."""
        with self._guard:
            if self._store is None:
                self._store = opened_store(self._root / "store")
            return self._store

    def open_store(self) -> None:
        """Open the store, and free what it need not keep, for work that needs more room than is left without.

        Raises:
            OSError, sqlite3.Error: as :attr:`store`, or there is less room than any work takes.
        """
        _ = self.store
        self.collect()
        if shutil.disk_usage(self._root).free < LEAST_ROOM:
            raise OSError(errno.ENOSPC, f"less than {LEAST_ROOM >> 20} MiB are free")

    @property
    def network(self) -> Path:
        """Where the network that the market told of is noted."""
        return self._root / "network.json"

    @property
    def acknowledgements(self) -> Path:
        """Where the market's promises are kept."""
        return acknowledgements_in(self._root)

    @property
    def traces(self) -> Path:
        """Where the traces of its units are kept."""
        return traces_in(self._root)

    @property
    def disputes(self) -> Path:
        """Where the disputes of its units are noted."""
        return disputes_in(self._root)

    @property
    def verdicts(self) -> Path:
        """Where the verdicts that it signed are kept."""
        return verdicts_in(self._root)

    @property
    def executor(self) -> Path:
        """Where the training process works."""
        return self._root / "executor"

    def unit(self, job_id: str, round_: int, slot: int) -> Path:
        """The directory of one unit, made where it is not there. Raises TaskError: what is given names no unit."""
        _require_place(job_id, round_, slot)
        path = self._root / "units" / job_id / f"{round_}-{slot}"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def kept_slot_state(self, job_id: str, slot: int, cid: str) -> Path | None:
        """A slot state of this node, whole; None if it is not here, or damaged: then it is set aside."""
        path = self.slot_state(job_id, slot, cid)
        return path if _is_whole(path, cid) else None

    def slot_state(self, job_id: str, slot: int, cid: str) -> Path:
        """Where a slot state of this node lies if it is here. Raises TaskError, InvalidCid: it is none's name."""
        _require_place(job_id, slot)
        return self._root / "slots" / job_id / str(slot) / str(parse(cid))

    def keep_slot_state(self, job_id: str, slot: int, file: Path) -> str:
        """Move a unit's slot state file to its place; returns its CID."""
        with file.open("rb") as content:
            cid = cid_of_file(content)
            os.fsync(content.fileno())
        path = self.slot_state(job_id, slot, cid)
        path.parent.mkdir(parents=True, exist_ok=True)
        file.replace(path)
        force_to_disk(path.parent)
        return cid

    def file(self, cid: str) -> Path:
        """Where the file of a CID lies if it is here. Raises InvalidCid: a lease or a record may hold anything."""
        return self._root / "files" / str(parse(cid))

    def local_path(self, cid: str) -> Path | None:
        """The file of a CID if it is here. One that an earlier process left is read first, and set aside if damaged."""
        path = self.file(cid)
        with self.single_flight(cid):
            if not (path.exists() if cid in self._whole else _is_whole(path, cid)):
                return None
            self._whole.add(cid)
            path.touch()
            return path

    def fetch(self, gateway: GatewayClient, cid: str, *, max_bytes: int = MAX_INPUT_BYTES) -> Path:
        """The file of a CID, downloaded and verified unless it is here; raises as ``GatewayClient.download``."""
        with self.single_flight(cid):
            path = self.local_path(cid)
            if path is None:
                path = self.file(cid)
                gateway.download(cid, path, max_bytes=max_bytes)
                self._whole.add(cid)
            return path

    def has_file_of(self, least_bytes: int) -> bool:
        """Whether a fetched or made file of at least that size is here."""
        for path in (self._root / "files").iterdir():
            with suppress(FileNotFoundError):  # just finished under its name, or removed
                if path.stat().st_size >= least_bytes:
                    return True
        return False

    def add_file(self, cid: str, content: bytes) -> None:
        """Keep the file of a CID, so that it need not be fetched."""
        with self.single_flight(cid):
            write_file(self.file(cid), content)
            self._whole.add(cid)

    def take(self, made: Path, cid: str) -> bool:
        """Have a file that was made in this directory be that of a CID; False if it is another's, and stays."""
        with self.single_flight(cid):
            with made.open("rb") as content:
                if cid_of_file(content) != cid:
                    return False
            made.replace(self.file(cid))
            self._whole.add(cid)
            return True

    @contextmanager
    def single_flight(self, cid: str) -> Iterator[None]:
        """One thread at a time has the file of a CID in the making; others wait, and find it there."""
        with self._guard:
            lock = self._making.setdefault(cid, threading.RLock())
        with lock:
            yield

    def keep(self, checkpoint: str, cids: Sequence[str], job_id: str) -> None:
        """Note that these pinned files make up a checkpoint of a job. Raises InvalidCid."""
        write_json(self._root / "checkpoints" / f"{parse(checkpoint)}.json", {"cids": list(cids), "job_id": job_id})

    def kept_jobs(self) -> set[str]:
        """The jobs of which a checkpoint or a slot state is here."""
        found = self._checkpoints_by_job().keys() | {path.name for path in (self._root / "slots").iterdir()}
        return {job_id for job_id in found if _JOB_ID.fullmatch(job_id)}

    def over_since(self, job_id: str, now: int) -> int:
        """When the job was first seen to be over (Unix seconds, by the chain): at first ``now``, which is noted."""
        path = self._root / "over" / f"{job_id}.json"
        since = read_json(path, lambda note: int(note["since"]))
        if since is None:
            write_json(path, {"since": now})
        return now if since is None else since

    def release_job(self, job_id: str) -> None:
        """Release the checkpoints and slot states of a job that nobody can ask for any more."""
        _remove(self._root / "slots" / job_id)  # first: that needs no room
        self.release(self._checkpoints_by_job().get(job_id, []))
        (self._root / "over" / f"{job_id}.json").unlink(missing_ok=True)

    def _checkpoints_by_job(self) -> dict[str, list[str]]:
        found = dict[str, list[str]]()
        for path in (self._root / "checkpoints").glob("*.json"):
            if (job_id := read_json(path, lambda note: str(note.get("job_id", "")))) is not None:
                found.setdefault(job_id or self._job_of(path.stem), []).append(path.stem)
        return found

    def _job_of(self, checkpoint: str) -> str:
        """The job that the checkpoint's manifest names; notes of earlier versions do not. "" if it is none."""
        try:
            manifest = b"".join(self.store.read(parse(checkpoint), max_bytes=MAX_MANIFEST_BYTES))
            return CheckpointManifest.from_bytes(manifest).job_id
        except (BlockNotFound, ContentError, GymError):  # a slot state, say
            return ""

    def release(self, checkpoints: Iterable[str]) -> None:
        """Unpin what belongs to these checkpoints and to none that stays; unknown ones are passed over.

        What belongs to them is forgotten last: if this process is killed before, the next release goes on.
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

    def remember(self, lease: Lease) -> None:
        """Note a lease, so that it is taken up again should this process be killed."""
        write_json(self._lease_file(lease), lease.as_dict())

    def forget(self, lease: Lease) -> None:
        """The lease is done or lost."""
        self._lease_file(lease).unlink(missing_ok=True)

    def remembered(self) -> list[Lease]:
        """The leases that were at hand when the last process ended."""
        found = (read_json(path, Lease.from_dict) for path in (self._root / "leases").glob("*.json"))
        return [lease for lease in found if lease is not None]

    def new_session(self) -> tuple[str, list[str]]:
        """A random id for this process, and those of the last ones that used the directory, the oldest first."""
        path = self._root / "sessions.json"
        before = read_json(path, lambda note: [str(one) for one in note["sessions"]]) or []
        session = secrets.token_hex(16)
        try:
            write_json(path, {"sessions": [*before, session][-_SESSIONS_KEPT:]})
        except OSError as error:  # started again soon, this node is taken for a stranger until its silence is noticed
            log.warning("%s cannot be written: %s", path, error)
        return session, before

    def tidy(self, keep_hours: float, slot_state_seconds: float = 0.0, now: float | None = None) -> None:
        """Remove what is of units older than ``keep_hours``, and inputs that were not used for an hour.

        What may be challenged counts by ``now`` (Unix seconds; None: this machine's clock), which does not jump ahead.

        Slot states are kept for ``slot_state_seconds``, or longer than a unit's states: with them those are made again,
        for as long as the unit can be disputed. They count from when a unit last started from them, and the newest of
        all stays: its slot may wait long.
        """
        here = time.time()
        now = here if now is None else now
        states = sorted((self._root / "slots").glob("*/*/*"), key=lambda path: path.stat().st_mtime)
        for path in states[:-1]:
            if now - path.stat().st_mtime > max(keep_hours * 3600, slot_state_seconds):
                _remove(path)
        for path in (self._root / "files").iterdir():
            if here - path.stat().st_mtime > _FILES_KEPT_SECONDS:
                _remove(path)
        for path in (self._root / "units").glob("*/*"):
            if now - path.stat().st_mtime > keep_hours * 3600:
                _remove(path)

    def collect(self) -> None:
        """Remove blocks that no pinned file needs and that were fetched longer than a day ago, unless that was done
        within the hour. It may take minutes, for which whoever fetches waits."""
        if time.monotonic() < self._collect_at:
            return
        self._collect_at = time.monotonic() + _COLLECT_SECONDS
        try:
            self.store.collect(older_than=_BLOCKS_KEPT_SECONDS)
        except (BlockNotFound, ContentError) as error:
            log.warning("no old blocks removed: a pinned checkpoint is damaged: %s", error)

    def _lease_file(self, lease: Lease) -> Path:
        return self._root / "leases" / f"{lease.id}.json"


def _require_place(job_id: str, *numbers: int) -> None:
    """What comes from the market becomes part of a path: it must not lead out of the node's directory."""
    if not _JOB_ID.fullmatch(job_id) or any(type(number) is not int for number in numbers):
        raise TaskError("invalid_task", "task.job_id", f"{job_id!r:.80}, {numbers!r:.80} is no unit's place")


def _is_whole(path: Path, cid: str) -> bool:
    """Whether a file is there and has this CID; one that has not is set aside."""
    try:
        with path.open("rb") as content:
            found = cid_of_file(content)
    except FileNotFoundError:
        return False
    except (IsADirectoryError, PermissionError) as error:
        quarantine(path, error)
        return False
    if found != cid:
        quarantine(path, f"its content is {found}")
    return found == cid


def _remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it; what is gone is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
