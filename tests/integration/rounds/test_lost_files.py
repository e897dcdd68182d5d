"""Files lost by storage: recomputed where possible, otherwise the round goes on."""

import errno
import json
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from kit.engines.lost_files import lose
from kit.errors import raising
from kit.jobs.aggregation_tree_fixtures import in_one_place, leaves_of, nodes_far_apart, work, work_leaves  # noqa: F401  (fixture)
from kit.jobs.jobs_fixtures import World
from kit.jobs.rollbacks import why
from sqlalchemy import select, update

from market.domain.lifecycle import JobStatus
from market.platform.db.base import utc_now
from market.platform.events.models import AuditEvent
from market.platform.storage.client import Storage
from market.platform.storage.errors import BlobNotFound, StorageUnavailable
from market.providers.models import Outage
from market.training.aggregation import final_model, lost_inputs
from market.training.evaluation.service import examine
from market.training.units.models import Unit
from training_gym.units.checkpoint import CheckpointManifest
from zoo_compute.content.blockstore import BlockStore


def close_round(world: World, job_id: str) -> None:
    number = world.read(job_id).current_round
    world.aggregate(job_id)
    while world.read(job_id).current_round == number:
        waiting, world.wakes.seen = world.wakes.seen, []
        assert waiting, "somebody must be woken until the round is closed"
        for task in waiting:
            work(world, task)


def test_lost_sum_is_computed_again(world: World, far_apart: list[str], ipfs: dict[str, str]) -> None:
    job_id = world.delivered_job(far_apart)
    expected = in_one_place(world, job_id)
    world.aggregate(job_id)
    for _ in range(2):
        work_leaves(world, job_id)
    for lost in (0, 2):  # as a disk may, or another job that comes to the same sum and lets go of it
        world.storage.unpin(leaves_of(world, job_id)[lost].sum_cid or "")
    assert BlockStore(Path(ipfs["directory"])).collect()
    world.wakes.seen.clear()
    close_round(world, job_id)
    assert world.checkpoint(job_id) == expected


@pytest.mark.parametrize(
    ("as_tree", "lost"),
    [
        (True, 1),
        (False, 6),
        pytest.param(True, 6, marks=pytest.mark.long),
        pytest.param(False, 1, marks=pytest.mark.long),
    ],
)
def test_round_continues_without_lost_payloads(
    world: World, far_apart: list[str], ipfs: dict[str, str], as_tree: bool, lost: int
) -> None:
    if not as_tree:
        world.settings = world.settings.model_copy(update={"tree_aggregation_min_values": 1 << 40})
    job_id = world.delivered_job(far_apart)
    gone = world.units(job_id)[:lost]
    for unit in gone:  # as a disk may
        world.storage.unpin(unit.payload_cid or "")
    assert BlockStore(Path(ipfs["directory"])).collect()
    close_round(world, job_id)
    kept = {unit.slot for unit in world.units(job_id) if unit.round == 0 and unit.included}
    assert kept == set(range(6)) - {unit.slot for unit in gone}
    left_out = [unit for unit in world.units(job_id) if unit.round == 0 and unit.included is False]
    assert {(unit.status, unit.reason, unit.exclusion_reason) for unit in left_out} == {
        ("uploaded", None, "payload_lost")
    }
    manifest = CheckpointManifest.from_bytes(world.storage.get(world.checkpoint(job_id), max_bytes=1 << 20))
    record = json.loads(world.storage.get(manifest.aggregation or "", max_bytes=1 << 20))
    assert {entry["slot"] for entry in record["payloads"]} == kept
    assert set(manifest.slot_states) <= {str(slot) for slot in kept}
    examine(world.database, world.storage, job_id)
    assert all(unit.doubts == [] for unit in world.units(job_id) if unit.round == 0)
    world.dispatch(job_id)
    world.deliver_all(far_apart)
    close_round(world, job_id)
    assert all(unit.included for unit in world.units(job_id) if unit.round == 1)


def test_lost_checkpoint_and_payloads_exclude_no_node(world: World, far_apart: list[str], ipfs: dict[str, str]) -> None:
    job_id = world.delivered_job(far_apart)
    lose(ipfs, world.checkpoint(job_id, 0), world.units(job_id)[0].payload_cid or "")
    with suppress(BlobNotFound):
        world.aggregate(job_id)
    for task in world.wakes.seen:
        with suppress(BlobNotFound):
            work(world, task)
    assert world.read(job_id).current_round == 0
    assert {unit.included for unit in world.units(job_id)} == {None}


def trained_long_ago(world: World, job_id: str) -> None:
    """Let the round have had payloads and its first failure longer ago than the patience."""
    ago = world.settings.replay_seconds + timedelta(hours=3, minutes=1).total_seconds()
    world.start_round(job_id, ago=ago)
    delivered = update(Unit).where(Unit.job_id == job_id, Unit.status == "uploaded")
    world.execute(delivered.values(uploaded_at=utc_now() - timedelta(seconds=ago)))
    failed = update(AuditEvent).where(AuditEvent.subject_id == job_id, AuditEvent.event == "round_inputs_missing")
    world.execute(failed.values(created_at=utc_now() - timedelta(seconds=ago)))


def assert_ended_and_paid(world: World, job_id: str) -> None:
    """The job ended because of its inputs, and is settled once its delivered units are verified."""
    assert (world.read(job_id).status, world.read(job_id).reason) == (JobStatus.FAILED, "inputs_unusable")
    [sentence] = why(world, job_id, "ended")
    assert "Storage did not provide its inputs, or" in sentence
    world.wakes.seen.clear()
    assert {unit.status for unit in world.units(job_id)} == {"uploaded"}
    world.verify_uploaded(job_id)
    assert {unit.status for unit in world.units(job_id)} == {"verified"}
    assert ("settlement.settle", ()) in world.wakes.seen


def test_last_round_without_dataset_ends_in_time(world: World, nodes: list[str], ipfs: dict[str, str]) -> None:
    job_id = world.delivered_job(nodes, rounds=1)
    lose(ipfs, world.spec.dataset)
    for _ in range(2):
        with pytest.raises(BlobNotFound):
            world.aggregate(job_id)
    assert world.read(job_id).status == JobStatus.RUNNING
    trained_long_ago(world, job_id)
    world.aggregate(job_id)
    assert_ended_and_paid(world, job_id)


def test_full_disk_of_worker_ends_no_job(world: World, nodes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = world.delivered_job(nodes, rounds=1)
    with monkeypatch.context() as broken:
        broken.setattr(final_model, "receipt_loss", raising(OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(OSError, match="No space"):
            world.aggregate(job_id)
        trained_long_ago(world, job_id)
        with pytest.raises(OSError, match="No space"):
            world.aggregate(job_id)
    world.aggregate(job_id)
    assert world.read(job_id).status == JobStatus.VERIFYING


@pytest.mark.parametrize("error", [StorageUnavailable("no answer"), BlobNotFound("not in time")])
def test_single_error_after_long_wait_ends_no_job(
    world: World, nodes: list[str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """No worker had memory for the round, or its evaluation took hours."""
    job_id = world.delivered_job(nodes, rounds=1)
    trained_long_ago(world, job_id)
    with monkeypatch.context() as broken:
        broken.setattr(final_model, "receipt_loss", raising(error))
        for _ in range(2):
            with pytest.raises(type(error)):
                world.aggregate(job_id)
    assert len(world.all(select(AuditEvent).where(AuditEvent.event == "round_inputs_missing"))) == 1
    world.aggregate(job_id)
    assert world.read(job_id).status == JobStatus.VERIFYING


def test_error_of_long_evaluation_ends_no_job(world: World, nodes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt may still succeed."""
    job_id, passed = world.delivered_job(nodes, rounds=1), [timedelta(0)]
    monkeypatch.setattr(lost_inputs, "utc_now", lambda: utc_now() + passed[0])

    def evaluate(*_: object) -> None:
        passed[0] += timedelta(hours=5)
        raise BlobNotFound("not in time")

    with monkeypatch.context() as broken:
        broken.setattr(final_model, "receipt_loss", raising(BlobNotFound("not in time")))
        with pytest.raises(BlobNotFound):
            world.aggregate(job_id)
        broken.setattr(final_model, "receipt_loss", evaluate)
        with pytest.raises(BlobNotFound):
            world.aggregate(job_id)
        assert world.read(job_id).status == JobStatus.RUNNING
        world.aggregate(job_id)
    assert_ended_and_paid(world, job_id)


def test_storage_outage_ends_no_trained_job(world: World, nodes: list[str]) -> None:
    job_id = world.delivered_job(nodes, rounds=1)
    trained_long_ago(world, job_id)
    working, world.storage = world.storage, Storage("http://127.0.0.1:1")
    with pytest.raises(StorageUnavailable):
        world.aggregate(job_id)
    world.storage = working
    world.aggregate(job_id)
    assert world.read(job_id).status == JobStatus.VERIFYING


def test_outage_of_storage_takes_no_patience(world: World, nodes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """No attempt can find a file that is restored until then."""
    job_id = world.delivered_job(nodes, rounds=1)
    for failure, works in ((BlobNotFound("not in time"), True), (StorageUnavailable("no answer"), False)):
        with monkeypatch.context() as broken:
            broken.setattr(final_model, "receipt_loss", raising(failure))
            broken.setattr(Storage, "accepts_writes", lambda _, works=works: works)
            with pytest.raises(type(failure)):
                world.aggregate(job_id)
    trained_long_ago(world, job_id)
    world.execute(update(Outage).values(starts_at=utc_now() - timedelta(hours=2)))
    with monkeypatch.context() as broken:
        broken.setattr(final_model, "receipt_loss", raising(BlobNotFound("not in time")))
        with pytest.raises(BlobNotFound):
            world.aggregate(job_id)
    world.aggregate(job_id)
    assert world.read(job_id).status == JobStatus.VERIFYING


def test_round_without_its_checkpoint_ends_in_time(world: World, far_apart: list[str], ipfs: dict[str, str]) -> None:
    """No leaf of the tree can be summarised."""
    job_id = world.delivered_job(far_apart)
    world.aggregate(job_id)
    lose(ipfs, world.checkpoint(job_id, 0))
    with pytest.raises(BlobNotFound):
        work_leaves(world, job_id)
    trained_long_ago(world, job_id)
    work_leaves(world, job_id)
    assert_ended_and_paid(world, job_id)
