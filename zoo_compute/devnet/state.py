"""What a devnet remembers between runs, in ``<directory>/state.json`` (mode 0600: it holds development keys)."""

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
    """What ``devnet up`` was asked for. It holds until ``reset``: the accounts are funded once.

    ``slow_link_mbps``: what provider-2's link is held to; None is no limit. ``held_up_from``: provider-4 is held up
    with its first unit of this round or a later one, until it is released; None is never. ``pace``: ``ZOO_*`` settings
    of the market in place of a devnet's usual ones; the environment's come before them.
    """

    providers: int = 5
    verifiers: int = 3  # a committee of the development network
    cheat: bool = False
    slow_link_mbps: float | None = None
    cheat_kind: str = "fabricate"  # one of zoo_compute.devnet.cheats.cheat.KINDS
    held_up_from: int | None = None
    pace: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Started:
    """A part's process, and how to stop it should its supervisor be gone.

    ``layer``: higher ones are stopped first.
    """

    identity: Identity
    stop_signal: int
    layer: int


@dataclass(slots=True)
class State:
    """The recorded facts of one devnet.

    Attributes:
        ports: TCP ports on 127.0.0.1 by part; kept, so that addresses outlive a restart.
        parts: the processes of the last run by part.
        supervisor: the process that keeps the parts running.
        phase: starting | ready | stopping | stopped | failed.
        failure: why it failed, for people.
        start_seconds: from the command to the whole stack being healthy.
        settings: the ``ZOO_*`` variables that the market's processes run with.
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


class StateDirectory:
    """The directory of one devnet. Writes are atomic; one supervisor at a time holds the lock."""

    def __init__(self, directory: Path) -> None:
        self.root = directory.resolve()

    def path(self, *names: str) -> Path:
        return self.root.joinpath(*names)

    def log(self, part: str) -> Path:
        """The log of one part."""
        return self.path("logs", f"{part}.log")

    def away(self, part: str) -> Path:
        """While there is this file, the part is not started (again)."""
        return self.path(f"{part}.away")

    def node(self, part: str) -> Path:
        """The state directory of a node."""
        return self.path("nodes", part)

    @property
    def deployment_file(self) -> Path:
        """Where the contracts' addresses are written by their deployment."""
        return self.path("deployment.json")

    def create(self) -> None:
        """Make the directories of a devnet. Raises DevnetError where that is not possible."""
        try:
            self.path("logs").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DevnetError(
                "devnet-directory-unusable",
                f"{self.root}: {error.strerror}",
                remedy="Give a --directory that this user may write to.",
            ) from error

    def load(self) -> State | None:
        """The recorded state, or None when there is none.

        Raises:
            DevnetError: if the file cannot be understood.
        """
        try:
            document = json.loads(self.path("state.json").read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise DevnetError(
                "devnet-state-damaged",
                f"{self.path('state.json')} is no JSON: {error}",
                remedy="Run: zoo-compute devnet reset",
            ) from error
        return _from_document(document)

    def save(self, state: State) -> None:
        """Write the state so that a reader sees the old one or the new one, never half of it."""
        partial = self.path(f"state.json.{os.getpid()}")
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as file:
            json.dump(asdict(state), file, indent=1)
        partial.replace(self.path("state.json"))

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Hold the right to run this devnet; yields False when another process holds it.

        The kernel releases it with its holder, so a killed supervisor leaves nothing behind.
        """
        self.create()
        with open(self.path("lock"), "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True


def _from_document(document: dict[str, Any]) -> State:
    supervisor = document.pop("supervisor")
    return State(
        **{
            **document,
            "options": Options(**document["options"]),
            "parts": {
                name: Started(**{**part, "identity": Identity(**part["identity"])})
                for name, part in document["parts"].items()
            },
            "supervisor": Identity(**supervisor) if supervisor else None,
        }
    )
