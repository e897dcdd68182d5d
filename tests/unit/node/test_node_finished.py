"""A node deletes a finished job's files once no party can ask for them."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from training_gym.units.checkpoint import CheckpointManifest
from zoo_compute.base.errors import Unreachable
from zoo_compute.chain.wallet import Block
from zoo_compute.node.disk import finished
from zoo_compute.node.disk.finished import FinishedJobs
from zoo_compute.node.disk.workspace import Workspace
from zoo_protocol.content.cid import parse

JOB, OTHER = "0x" + "01" * 32, "0x" + "02" * 32
CID = "bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"
KEEP = 1000
END = 5_000


class World:
    def __init__(self, root: Path) -> None:
        self.root, self.workspace = root, Workspace(root)
        self.now, self.over, self.disputed, self.away = END, {JOB}, False, False
        store = self.workspace.store
        self.shared = str(store.add(b"of both"))
        self.manifests = {job: str(store.add(b"manifest of " + job.encode())) for job in (JOB, OTHER)}
        for job, manifest in self.manifests.items():
            self.workspace.keep(manifest, [manifest, self.shared], job)
            state = self.workspace.unit(job, 1, 0) / "slot-state.safetensors"
            state.write_bytes(job.encode())
            self.workspace.keep_slot_state(job, 0, state)

    def final_block(self) -> Block:
        if self.away:
            raise Unreachable("chain-unreachable", "no answer")
        return Block(1, self.now)

    def look(self) -> None:
        chain: Any = SimpleNamespace(
            final_block=self.final_block, trace_retention_seconds=KEEP, is_over=lambda job, _block: job in self.over
        )
        FinishedJobs(Workspace(self.root), lambda: chain, lambda: self.disputed).release()

    def kept(self) -> set[str]:
        found = set()
        for job, manifest in self.manifests.items():
            pinned = self.workspace.store.is_pinned(parse(manifest))
            states = list((self.root / "slots").glob(f"{job}/*/*"))
            assert pinned == bool(states) == (self.root / "checkpoints" / f"{manifest}.json").exists()
            if pinned:
                found.add(job)
        return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_finished_job_files_are_deleted_after_dispute_period(world: World) -> None:
    world.look()  # sees the end
    world.now = END + 2 * KEEP
    world.look()
    assert world.kept() == {JOB, OTHER}
    world.now += 1
    world.look()
    assert world.kept() == {OTHER}
    assert world.workspace.store.is_pinned(parse(world.shared))  # the other job's too
    assert os.listdir(world.root / "over") == []
    world.over.add(OTHER)
    world.look()
    world.now += 2 * KEEP + 1
    world.look()
    assert world.kept() == set()
    assert not world.workspace.store.is_pinned(parse(world.shared))


def test_retention_counts_from_end_not_start(world: World) -> None:
    world.over.clear()
    world.look()
    world.now, world.over = END + 100 * KEEP, {JOB}
    world.look()
    assert world.kept() == {JOB, OTHER}


def test_files_are_kept_during_dispute_or_chain_outage(world: World) -> None:
    world.look()
    world.now, world.disputed = END + 100 * KEEP, True
    world.look()
    assert world.kept() == {JOB, OTHER}
    world.disputed, world.away = False, True
    with pytest.raises(Unreachable):
        world.look()
    assert world.kept() == {JOB, OTHER}
    world.away = False
    world.look()
    assert world.kept() == {OTHER}


def test_damaged_end_record_restarts_retention_time(world: World) -> None:
    world.look()
    (world.root / "over" / f"{JOB}.json").write_bytes(b'{"since')
    world.now = END + 100 * KEEP
    world.look()
    assert world.kept() == {JOB, OTHER}
    world.now += 2 * KEEP + 1
    world.look()
    assert world.kept() == {OTHER}


def test_old_checkpoint_record_uses_job_of_manifest(world: World) -> None:
    named = CheckpointManifest(JOB, 1, None, CID, None, None, None, {}, 0, "0x" + "05" * 32).to_bytes()
    checkpoint, state = (str(world.workspace.store.add(content)) for content in (named, b"a slot state"))
    for cid in (checkpoint, state):
        (world.root / "checkpoints" / f"{cid}.json").write_text(f'{{"cids": ["{cid}"]}}')
    world.look()
    world.now = END + 2 * KEEP
    world.look()
    assert world.workspace.store.is_pinned(parse(checkpoint))
    world.now += 1
    world.look()
    assert not world.workspace.store.is_pinned(parse(checkpoint))
    assert world.workspace.store.is_pinned(parse(state))


def test_finished_jobs_are_checked_hourly(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(finished, "time", clock)
    asked: list[float] = []
    chain: Any = SimpleNamespace(
        final_block=lambda: asked.append(clock.now) or Block(1, END), trace_retention_seconds=KEEP
    )
    chain.is_over = lambda *_: False
    jobs = FinishedJobs(world.workspace, lambda: chain, lambda: False)
    for clock.now in (0.0, 1.0, 3599.0, 3600.0, 7000.0):
        jobs.release()
    assert asked == [0.0, 3600.0]
