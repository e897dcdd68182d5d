"""The demonstration's incidents, triggered by its job's events."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from zoo_compute.base.models import Event
from zoo_compute.demo import incidents
from zoo_compute.demo.incidents import LEAVER, Incidents
from zoo_compute.devnet.processes import Identity
from zoo_compute.devnet.stack import DELAYED_NODE
from zoo_compute.devnet.state import Started, State, StateDirectory
from zoo_compute.node.work.inputs import MODEL_MADE

HELD_UP_ADDRESS, LEAVER_ADDRESS = "0xheld", "0xleaver"


@pytest.fixture
def leaver() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def directory(tmp_path: Path, leaver: subprocess.Popen[bytes]) -> StateDirectory:
    directory = StateDirectory(tmp_path)
    directory.create()
    identity = Identity.of(leaver.pid)
    assert identity is not None
    directory.save(State(parts={LEAVER: Started(identity, signal.SIGTERM, 2)}))
    directory.node(DELAYED_NODE).mkdir(parents=True)
    directory.log(LEAVER).write_text(MODEL_MADE % (1, 0, 1, 10, 100) + "\n")
    return directory


def _round(done: int) -> Event:
    return Event(id=1, kind="round", data={"round": done})


def _committed(round_: int, provider: str = HELD_UP_ADDRESS) -> Event:
    return Event(id=1, kind="unit", data={"round": round_, "provider": provider, "status": "committed"})


def _step(provider: str = LEAVER_ADDRESS) -> Event:
    return Event(id=1, kind="step", data={"provider": provider})


class Play:
    def __init__(self, directory: StateDirectory, leaver: subprocess.Popen[bytes]) -> None:
        self.incidents = Incidents(directory, HELD_UP_ADDRESS, LEAVER_ADDRESS)
        self._directory, self._leaver = directory, leaver

    def after(self, *events: Event) -> tuple[bool, bool, bool]:
        for event in events:
            self.incidents.process(event)
        released = (self._directory.node(DELAYED_NODE) / "go-on").exists()
        return released, self._leaver.poll() is not None, self._directory.away(LEAVER).exists()


@pytest.fixture
def play(directory: StateDirectory, leaver: subprocess.Popen[bytes]) -> Play:
    return Play(directory, leaver)


def test_incidents_follow_job_events_in_order(play: Play, directory: StateDirectory) -> None:
    assert play.after(_committed(0), _round(1), _step()) == (False, False, False)
    assert play.after(_committed(1, "0xother"), _committed(1), _step()) == (False, False, False)
    assert play.after(_round(2)) == (True, False, False)
    assert play.after(_step("0xother")) == (True, False, False)
    assert play.after(_step()) == (True, True, True)
    assert (play.incidents.delayed, play.incidents.left_after) == (1, 2)
    assert play.after(_step("0xother")) == (True, True, True)
    assert play.after(_round(3)) == (True, True, False)
    with directory.log(LEAVER).open("a") as log:
        log.write(f"INFO {MODEL_MADE % (4, 2, 2, 66, 526)}\nINFO {MODEL_MADE % (5, 4, 1, 33, 526)}\n")
    assert play.incidents.catch_up_entries() == [
        {"round": 4, "from_round": 2, "updates": 2, "update_bytes": 66, "model_bytes": 526},
        {"round": 5, "from_round": 4, "updates": 1, "update_bytes": 33, "model_bytes": 526},
    ]
    assert play.after(_round(5), _step(), _round(6)) == (True, True, False)


def test_later_commitment_shifts_all_later_times(play: Play) -> None:
    assert play.after(_round(2), _round(3), _committed(3), _step()) == (False, False, False)
    assert play.after(_round(4), _step()) == (True, True, True)
    assert (play.incidents.delayed, play.incidents.left_after) == (3, 4)


def test_absent_replica_returns_before_missing_two_rounds(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    assert play.after(_committed(1), _round(2), _step()) == (True, True, True)
    monkeypatch.setattr(incidents, "MAX_STOPPED_SECONDS", 0.0)
    assert play.after(_step("0xother")) == (True, True, False)
