"""Changed or lost states on a provider's disk: the node reveals signed ones or none."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.verification.live_fixtures import HONEST_ACCOUNT, LiveWorld, Node
from sqlalchemy import select

from market.training.leases.models import Lease
from market.training.leases.schemas import LeaseKind
from training_gym.units.trace import state_path
from zoo_compute.node.disk.files import write_json


def one_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-2] ^= 1  # of the last value: a number as good as the one that was
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "one bit": one_bit,
    "cut": lambda path: os.truncate(path, path.stat().st_size - 1),
    "gone": lambda path: path.unlink(),
}


def trained(live: LiveWorld, provider: Node) -> tuple[str, Path]:
    job_id = live.train(provider)
    return job_id, provider.worker.workspace.unit(job_id, 0, 0)


@pytest.mark.parametrize("damage", ["gone", "one bit", "cut"])
def test_damaged_state_is_recomputed_before_reveal(
    live: LiveWorld, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    provider = live.provider_node(HONEST_ACCOUNT)
    verifiers = [live.verifier_node() for _ in range(2)]
    job_id, directory = trained(live, provider)
    for segment in (1, 3):
        DAMAGES[damage](state_path(directory, segment))
    live.decide(job_id, [provider], verifiers)
    assert [unit.status for unit in live.units(job_id)] == ["verified"]
    assert {sample.status for sample in live.samples()} == {"passed"}
    assert (live.slashes(), provider.failures) == ([], [])
    assert caplog.text.count("unit_retrained") == 1  # all of its states are there from then on


def test_irrecoverable_state_is_reported_instead_of_revealed(live: LiveWorld) -> None:
    provider = live.provider_node(HONEST_ACCOUNT)
    _, directory = trained(live, provider)
    for segment in (1, 2, 3):
        one_bit(state_path(directory, segment))
    [note] = provider.worker.workspace.traces.glob("*.json")
    document = json.loads(note.read_text())
    document["task"]["spec"]["training_config"]["seed"] += 1  # a replay comes to other states
    write_json(note, document)
    for _ in range(10):
        live.step()
        live.work_off(provider, LeaseKind.REVEAL)
        if provider.failures:
            break
    assert provider.failures == ["StateUnavailable"] * 3
    given_up = select(Lease.reason).where(Lease.kind == LeaseKind.REVEAL, Lease.status == "failed")
    assert set(live.all(given_up)) == {"state_lost"}
    assert {sample.status for sample in live.samples() if sample.segment} == {"drawn"}
