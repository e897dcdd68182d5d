"""The demonstration of two processes: its incident, and the checks of its result."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from kit.waiting import is_alive, wait_until

from zoo_compute.base.models import Event
from zoo_compute.demo.processes import HONEST, NODE, PINS, ROUNDS, ProcessLoss, checks, format_report, helpers
from zoo_compute.devnet.processes import Identity
from zoo_compute.devnet.state import Started, State, StateDirectory

ADVERSARY, HELPER = "0x" + "c0" * 20, "0x" + "a0" * 20


@pytest.fixture
def node() -> Iterator[psutil.Process]:
    """Return a process whose child has forked another one."""
    with subprocess.Popen(["sh", "-c", "sh -c 'sleep 600 & wait' & wait"], start_new_session=True) as process:
        found = psutil.Process(process.pid)
        wait_until(lambda: helpers(found))
        family = found.children(recursive=True)
        yield found
        for one in (*family, found):
            with suppress(psutil.NoSuchProcess):
                one.kill()


@pytest.fixture
def directory(tmp_path: Path, node: psutil.Process) -> StateDirectory:
    directory = StateDirectory(tmp_path)
    directory.create()
    identity = Identity.of(node.pid)
    assert identity is not None
    directory.save(State(parts={NODE: Started(identity, signal.SIGTERM, 2)}))
    for name in HONEST:
        directory.away(name).touch()
    return directory


def _step(round_: int, provider: str = ADVERSARY) -> Event:
    return Event(id=1, kind="step", data={"provider": provider, "round": round_})


def _lost(reason: str) -> Event:
    return Event(id=1, kind="unit", data={"status": "lost", "reason": reason, "round": 0})


def test_one_process_is_killed_in_honest_unit(directory: StateDirectory, node: psutil.Process) -> None:
    incident = ProcessLoss(directory, ADVERSARY)
    [first] = helpers(node)
    for event in (_step(0, HELPER), _step(1)):
        incident.process(event)
    assert helpers(node) == [first]
    incident.process(_step(0))
    wait_until(lambda: not is_alive(first))


def test_honest_nodes_join_after_repeated_unit(directory: StateDirectory) -> None:
    incident = ProcessLoss(directory, ADVERSARY)
    done = Event(id=1, kind="round", data={"round": 1})
    for event in (_lost("stopped"), done):
        incident.process(event)
    assert all(directory.away(name).exists() for name in HONEST)
    for event in (_lost("process_lost"), done, done):
        incident.process(event)
    assert incident.lost_round == 0
    assert not any(directory.away(name).exists() for name in HONEST)


FOUND: dict[str, Any] = {
    "provider": ADVERSARY,
    "processes": 2,
    "network_removed": True,
    "verifier_processes": [1, 1, 1],
    "lost_rounds": [0],
    "repeated": [{"round": 0, "paid_wei": "95"}],
    "rejected_rounds": [1],
}
RECEIPT: dict[str, Any] = {
    **{"budget_wei": "1000", "escrowed_wei": "1000", "paid_wei": "190", "fee_wei": "10", "refund_wei": "800"},
    "units": [
        {"provider": ADVERSARY, "round": 0, "slot": 0, "paid_wei": "95"},
        {"provider": ADVERSARY, "round": 1, "slot": 0, "paid_wei": "0"},
        {"provider": HELPER, "round": 2, "slot": 0, "paid_wei": "95"},
    ],
    "slashes": [{"provider": ADVERSARY, "path": "dispute"}],
    "story": {"honest": {"slashed": []}, "unit": {"round": 1}},
    "processes": FOUND,
    "checkpoints": [{"pins": [str(number) for number in range(PINS)]}] * (ROUNDS + 1),
    "initial_loss": 5.5,
    "final_loss": 2.5,
    "final_error": 0.005,
    "ledger_reconciled": True,
}


def test_expected_receipt_passes_all_checks() -> None:
    assert all(checks(RECEIPT, ADVERSARY).values())
    assert "over a private loopback. One was killed in round 0" in format_report(FOUND)


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        ({"processes": 1}, "the node trains on two processes, verifiers on one"),
        ({"verifier_processes": [1, 2]}, "the node trains on two processes, verifiers on one"),
        ({"lost_rounds": []}, "a unit lost a process"),
        ({"repeated": []}, "the node repeated it and is paid"),
        ({"repeated": [{"round": 0, "paid_wei": "0"}]}, "the node repeated it and is paid"),
        ({"rejected_rounds": []}, "a replay on one process refuted a unit of two"),
        ({"rejected_rounds": [0, 1]}, "a replay on one process refuted a unit of two"),
    ],
)
def test_broken_expectation_fails_its_check(change: dict[str, Any], failed: str) -> None:
    outcomes = checks(RECEIPT | {"processes": FOUND | change}, ADVERSARY)
    assert failed in [check for check, holds in outcomes.items() if not holds]


def test_paid_false_unit_fails_its_check() -> None:
    paid = [unit | {"paid_wei": "95"} for unit in RECEIPT["units"]]
    assert not checks(RECEIPT | {"units": paid}, ADVERSARY)["false work is not paid"]
