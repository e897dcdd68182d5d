"""A provider is killed during a dispute; the next process answers in time, once.

The node is a separate process against a real API and chain. The test mines the blocks.
So the kill happens while the node's answer is sent, but not in a block.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kit.chain.deployed_chain import Wallet, wallet
from kit.disputes.dispute_fixtures import TERMS, ZEN, Delivered, DisputeWorld, world_of_disputes  # noqa: F401  (fixtures)
from kit.engines.watchdog import watch
from kit.waiting import wait_until

from zoo_compute.chain.disputes import DisputePhase, Opened
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.work.acknowledgements import Journal

pytestmark = pytest.mark.long

CHALLENGER = wallet(8)
DEADLINE_SECONDS = 240  # many times what it takes


@contextmanager
def running(directory: Path, api_url: str, key: str, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Yield the node's process on its state directory; kill it at the end."""
    command = [sys.executable, "-m", "zoo_compute", "node", "run", "--role", "provider", "--api-url", api_url]
    environment = {**os.environ, "ZOO_PRIVATE_KEY": key, "OMP_NUM_THREADS": "1"}
    with log.open("ab") as output:
        process = subprocess.Popen([*command, "--state-dir", str(directory)], env=environment, stderr=output)
    watch(process.pid)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(DEADLINE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def until(condition: Callable[[], object], process: "subprocess.Popen[bytes]", log: Path) -> None:
    def is_met() -> object:
        assert process.poll() is None, log.read_text()
        return condition()

    wait_until(is_met, log.read_text, seconds=DEADLINE_SECONDS)


def dispute_of_one_that_runs(live: DisputeWorld, process: "subprocess.Popen[bytes]", unit: Delivered) -> Opened:
    process.send_signal(signal.SIGSTOP)
    opened = live.dispute(CHALLENGER, unit)
    live.deployed.anvil.automine(False)
    process.send_signal(signal.SIGCONT)
    return opened


@pytest.mark.parametrize(("account", "is_answer_lost"), [(wallet(40), True), (wallet(41), False)])
def test_killed_provider_answers_after_restart_and_challenger_pays(
    live: DisputeWorld, tmp_path: Path, account: Wallet, is_answer_lost: bool
) -> None:
    anvil, log = live.deployed.anvil, tmp_path / "node.log"
    anvil.rpc("anvil_impersonateAccount", account.address)
    anvil.rpc("anvil_setBalance", account.address, hex(ZEN))
    node = live.provider_node(account)
    unit, directory = live.delivered(node), live.directory / node.address
    journal = Journal(Workspace(directory).acknowledgements)
    assert journal.all()
    for promise in journal.all():  # the chain's clock, which tests before have moved, may be beyond what was promised
        journal.drop(promise)
    sent = live.sent_by(node)
    try:
        with running(directory, live.api_url, node.key, log) as first:
            until(Workspace(directory).network.exists, first, log)  # it has joined, and watches the chain
            opened = dispute_of_one_that_runs(live, first, unit)
            until(lambda: live.waiting(node), first, log)
            first.send_signal(signal.SIGKILL)
            assert first.wait(DEADLINE_SECONDS) == -signal.SIGKILL
        assert (live.state(opened).phase, live.sent_by(node)) == (DisputePhase.TRACE, sent)
        if is_answer_lost:
            for answer in live.waiting(node):
                anvil.rpc("anvil_dropTransaction", answer["hash"])
        anvil.mine()
    finally:
        anvil.automine(True)
    assert live.state(opened).phase is (DisputePhase.TRACE if is_answer_lost else DisputePhase.STEP)

    anvil.rpc("evm_increaseTime", TERMS.turn_seconds // 2)
    anvil.mine()
    with running(directory, live.api_url, node.key, log) as second:
        until(lambda: live.state(opened).phase is DisputePhase.STEP, second, log)
        live.pass_turn()  # its challenger has no step to name
        until(lambda: live.state(opened).phase is DisputePhase.CHALLENGER_LOST, second, log)
    assert live.sent_by(node) - sent in (2, 3)  # it showed its trace, ended the dispute, and may have had its pay
    views = live.deployed.views
    assert views.stake_of(node.address) == 1_000 * ZEN
    owed = views.balance_of(node.address) + live.chain_of(node).credits()
    assert owed == 1_000 * ZEN + TERMS.cost_wei
    assert (views.balance_of(CHALLENGER.address), live.chain_of(CHALLENGER).credits()) == (0, 0)
    assert log.read_text().count("trace_revealed") == is_answer_lost  # the first trace reveal stands
