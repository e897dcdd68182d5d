"""State of a devnet in ``<directory>/state.json`` (0600: it contains keys)."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from zoo_compute.base.errors import DevnetError
from zoo_compute.devnet.processes import Identity

DEFAULT_DIRECTORY = Path(".devnet")


@dataclass(slots=True)
class Options:
    """Options of ``devnet up``, fixed until ``reset``, because accounts are funded once.

    Attributes:
        slow_link_mbps: limit of provider-2's link; None: no limit.
        processes: processes that train a unit of provider-1 together.
        held_up_from: provider-4 delays its first unit of this round or a later one until release; None: never.
        pace: ``ZOO_*`` settings that replace a devnet's; the environment has priority.
    """

    providers: int = 5
    verifiers: int = 3  # a committee of the development network
    cheat: bool = False
    slow_link_mbps: float | None = None
    cheat_kind: str = "fabricate"  # one of zoo_compute.devnet.adversaries.adversary.KINDS
    processes: int = 1
    held_up_from: int | None = None
    pace: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Started:
    """Process of a part, and its stop signal. Higher layers stop first."""

    identity: Identity
    stop_signal: int
    layer: int


@dataclass(slots=True)
class State:
    """Recorded state of one devnet.

    Attributes:
        ports: TCP ports on 127.0.0.1 by part, kept over a restart.
        parts: processes of the last run, by part.
        phase: starting | ready | stopping | stopped | failed.
        start_seconds: from the command to a healthy stack.
        settings: ``ZOO_*`` variables of the market's processes.
    """

    options: Options = field(default_factory=Options)
    ports: dict[str, int] = field(default_factory=dict)
    parts: dict[str, Started] = field(default_factory=dict)
    supervisor: Identity | None = None
    phase: str = "stopped"
    failure: str | None = None
    start_seconds: float | None = None
    settings: dict[str, str] = field(default_factory=dict)
    database_password: str = ""

    def is_supervised(self) -> bool:
        """Return true if the recorded supervisor runs."""
        return self.supervisor is not None and self.supervisor.process() is not None


class StateDirectory:
    """Directory of one devnet. Writes are atomic; one supervisor at a time has the lock."""

    def __init__(self, directory: Path) -> None:
        self.root = directory.resolve()
        self.deployment_file = self.root / "deployment.json"  # with the contracts' addresses

    def path(self, *names: str) -> Path:
        return self.root.joinpath(*names)

    def log(self, part: str) -> Path:
        return self.path("logs", f"{part}.log")

    def away(self, part: str) -> Path:
        """Return the file whose existence prevents a start of the part."""
        return self.path(f"{part}.away")

    def node(self, part: str) -> Path:
        return self.path("nodes", part)

    def create(self) -> None:
        """Create the directories. Raises DevnetError if they are not writable."""
        try:
            self.path("logs").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DevnetError(
                "devnet-directory-unusable",
                f"{self.root}: {error.strerror}",
                remedy="Give a --directory that this user may write to.",
            ) from error

    def load(self) -> State | None:
        """Return the recorded state, or None. Raises DevnetError for a damaged file."""
        try:
            return _from_document(json.loads(self.path("state.json").read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DevnetError(
                "devnet-state-damaged",
                f"{self.path('state.json')} is damaged: {error!r}",
                remedy="Run: zoo-compute devnet reset",
            ) from error

    def save(self, state: State) -> None:
        """Replace the state atomically."""
        partial = self.path(f"state.json.{os.getpid()}")
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as file:
            json.dump(asdict(state), file, indent=1)
        partial.replace(self.path("state.json"))

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Lock this devnet until the process ends; yield False if another one has the lock."""
        self.create()
        with open(self.path("lock"), "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True


def _from_document(document: dict[str, Any]) -> State:
    parts = {name: part | {"identity": Identity(**part["identity"])} for name, part in document["parts"].items()}
    supervisor = document["supervisor"]
    read = {
        "options": Options(**document["options"]),
        "parts": {name: Started(**part) for name, part in parts.items()},
        "supervisor": Identity(**supervisor) if supervisor else None,
    }
    return State(**document | read)
