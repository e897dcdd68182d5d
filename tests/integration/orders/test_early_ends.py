"""Jobs that end early: cancelled, expired, without nodes or data."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from kit.errors import raising
from kit.jobs.jobs_fixtures import TEXT, World
from sqlalchemy import select, update

from market.accounts.service import Principal
from market.domain.lifecycle import JobStatus
from market.domain.nodes.uptime import minute_of
from market.jobs import repository as jobs_repository
from market.jobs.models import Job
from market.orders import amendments
from market.orders.errors import NotCancellable
from market.platform.db.base import utc_now
from market.platform.storage.client import Storage
from market.platform.storage.errors import BlobNotFound, StorageUnavailable
from market.providers.models import AskRow, ComponentHeartbeat, Outage
from market.providers.outages import service as outages
from market.providers.record import repository as record_repository
from market.training.checkpoints.service import StoredCheckpoint
from market.training.leases import service as leases
from market.training.leases.errors import LeaseLost
from market.training.leases.models import Lease
from market.training.matching import book
from market.training.rounds import first_checkpoint
from market.training.rounds import service as rounds
from market.training.units import service as units
from market.training.uploads import service as uploads
from market.training.uploads.models import Upload
from training_gym.data.dataset import DatasetManifest, describe_shard
from zoo_compute.content.blockstore import BlockStore
from zoo_protocol.content.unixfs import cid_of_file


def test_job_without_capacity_fails_and_frees_nodes(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    delivered = world.deliver(nodes[0])
    for node in nodes[1:]:
        world.call(leases.remove_node_from_jobs, node, "jailed")
    _retire(world, nodes[1:])
    world.start_round(job_id, ago=world.settings.round_deadline_seconds * 4)
    world.dispatch(job_id)
    assert (world.read(job_id).status, world.read(job_id).reason) == (JobStatus.FAILED, "no_capacity")
    assert world.call(leases.busy_providers) == set()
    assert "settlement.settle" not in world.wakes.names()  # the delivered unit is still undecided
    [unit] = world.units(job_id, provider=delivered.node)
    world.call(units.reject_unit, unit.id, "provider_jailed")
    assert ("settlement.settle", ()) in world.wakes.seen


def test_outage_time_does_not_expire_job(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    ago = world.settings.round_deadline_seconds * 4
    seen = [utc_now(), utc_now() - timedelta(seconds=ago + 60)]
    for at in seen:
        minute = minute_of(at.timestamp())
        world.call(record_repository.mark_minute, nodes[0], *minute)
    world.start_round(job_id, ago=ago)
    world.dispatch(job_id)
    assert world.read(job_id).status == JobStatus.RUNNING
    world.deliver_all(nodes)
    world.aggregate(job_id)
    assert world.read(job_id).current_round == 1
    world.dispatch(job_id)
    world.start_round(job_id, ago=ago)
    _retire(world, nodes)
    for node in nodes:
        world.call(leases.remove_node_from_jobs, node, "jailed")
    world.dispatch(job_id)  # no node works: this is not an outage
    assert (world.read(job_id).status, world.read(job_id).reason) == (JobStatus.FAILED, "no_capacity")


@pytest.fixture
def useless_dataset(world: World) -> None:
    """A dataset that differs from its manifest."""
    stored = world.storage.put(TEXT, max_bytes=2**20).cid
    good, bad = describe_shard(stored, TEXT), describe_shard(stored, TEXT[:-1] + b"!")
    manifest = world.storage.put(DatasetManifest((good,), (bad,)).to_bytes(), max_bytes=2**20).cid
    world.spec = replace(world.spec, dataset=manifest)


@pytest.mark.usefixtures("nodes", "useless_dataset")
def test_waiting_job_with_useless_dataset_ends_without_nodes(world: World) -> None:
    job_id = world.job()
    world.dispatch(job_id)
    assert (world.read(job_id).status, world.read(job_id).reason) == (JobStatus.CANCELLED, "dataset_unusable")
    assert ("settlement.settle", ()) in world.wakes.seen  # and is refunded


@pytest.mark.usefixtures("useless_dataset")
def test_dataset_differing_from_manifest_fails_job(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    assert (world.read(job_id).status, world.read(job_id).reason) == (JobStatus.FAILED, "dataset_unusable")
    assert world.call(leases.busy_providers) == set()
    assert ("settlement.settle", ()) in world.wakes.seen


@pytest.mark.parametrize("error", [StorageUnavailable("refused"), ValueError("no such model")])
def test_matched_job_without_start_ends_in_time(
    world: World, nodes: list[str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Inputs can pass all checks of an order and yet give no first checkpoint."""
    monkeypatch.setattr(rounds, "build_initial_checkpoint", raising(error))
    job_id = world.job(nodes=4)
    for _ in range(2):
        with pytest.raises(type(error)):
            world.place(job_id, nodes) if world.read(job_id).matched_at is None else world.dispatch(job_id)
    assert world.read(job_id).status == JobStatus.RUNNING
    world.change(Job, job_id, matched_at=utc_now() - timedelta(hours=3, seconds=1))
    world.dispatch(job_id)
    assert (world.read(job_id).status, world.read(job_id).reason) == (JobStatus.FAILED, "inputs_unusable")
    assert world.call(leases.busy_providers) == set()


@pytest.mark.parametrize("is_recorded", [True, False], ids=["after_sweep", "before_sweep"])
def test_outage_of_market_ends_no_matched_job(
    world: World, nodes: list[str], monkeypatch: pytest.MonkeyPatch, is_recorded: bool
) -> None:
    job_id = _matched_long_ago(world, nodes, monkeypatch, StorageUnavailable("refused"))
    until = utc_now()
    since = until - timedelta(hours=1)
    if is_recorded:
        world.add(Outage(part=outages.SWEEP, starts_at=since, ends_at=until))
    else:
        world.add(ComponentHeartbeat(part=outages.SWEEP, seen_at=since))
    world.dispatch(job_id)
    assert (world.read(job_id).status, len(world.units(job_id))) == (JobStatus.RUNNING, len(nodes))


def test_outage_of_storage_ends_no_matched_job(world: World, nodes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Storage, "accepts_writes", lambda _: False)
        job_id = _matched_long_ago(world, nodes, monkeypatch, StorageUnavailable("no answer"))
        world.execute(update(Outage).values(starts_at=utc_now() - timedelta(hours=3)))  # the last success
    world.dispatch(job_id)
    assert (world.read(job_id).status, len(world.units(job_id))) == (JobStatus.RUNNING, len(nodes))


def _matched_long_ago(world: World, nodes: list[str], monkeypatch: pytest.MonkeyPatch, error: Exception) -> str:
    """Return a job that was matched more than three hours ago, and whose start fails until now."""
    job_id = world.job(nodes=len(nodes))
    with monkeypatch.context() as patch:
        patch.setattr(rounds, "build_initial_checkpoint", raising(error))
        with pytest.raises(type(error)):
            world.place(job_id, nodes)
    world.change(Job, job_id, matched_at=utc_now() - timedelta(hours=3, minutes=30))
    return job_id


def test_first_files_collected_before_pin_are_stored_again(
    world: World, nodes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = world.manifest(world.running([world.node()]), 0)
    job_id, absent = world.job(nodes=len(nodes)), cid_of_file(b"collected by storage")
    with monkeypatch.context() as patch:
        patch.setattr(first_checkpoint, "store_checkpoint", lambda *_args, **_names: StoredCheckpoint(absent, made))
        with pytest.raises(BlobNotFound):
            world.place(job_id, nodes)
    world.dispatch(job_id)
    assert (world.read(job_id).status, len(world.units(job_id))) == (JobStatus.RUNNING, len(nodes))


def test_first_round_begins_with_first_checkpoint(
    world: World, nodes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large base may arrive after the time of a round."""
    job_id = world.job(nodes=4)
    with monkeypatch.context() as patch:
        patch.setattr(rounds, "build_initial_checkpoint", raising(StorageUnavailable("refused")))
        with pytest.raises(StorageUnavailable):
            world.place(job_id, nodes)
    matched = utc_now() - timedelta(hours=2)
    world.change(Job, job_id, matched_at=matched, round_started_at=matched)
    world.dispatch(job_id)
    world.dispatch(job_id)
    assert world.read(job_id).status == JobStatus.RUNNING
    world.deliver_all(nodes)
    world.end_round(job_id)
    assert world.read(job_id).current_round == 1


def test_job_dataset_survives_release_of_equal_unit_file(world: World, nodes: list[str], ipfs: dict[str, str]) -> None:
    """A node may upload a known dataset as its payload and never deliver it."""
    [unit, *_] = world.units(world.running(nodes))
    split = describe_shard(world.storage.put(TEXT * 2, max_bytes=2**20).cid, TEXT * 2)
    uploaded = utc_now() - timedelta(days=2)
    state = {"cid": split.cid, "joined": True, "pinned_here": True, "touched_at": uploaded}
    world.call(lambda session: session.add(Upload(unit_id=unit.id, purpose=uploads.PAYLOAD, **state)))
    manifest = world.storage.put(DatasetManifest((split,), (split,)).to_bytes(), max_bytes=2**20).cid
    world.spec = replace(world.spec, dataset=manifest)
    rounds.build_initial_checkpoint(world.database, world.settings, world.storage, world.job())
    assert uploads.delete_stale(world.database, world.storage, utc_now()) == 1
    BlockStore(Path(ipfs["directory"])).collect()
    assert world.storage.get(split.cid, max_bytes=2**20) == TEXT * 2


def test_cancelled_running_job_pays_delivered_units(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    world.deliver(nodes[0])
    at_work = world.work(nodes[1])
    payer = Principal(world.read(job_id).payer, frozenset(), 1, "session")
    world.call(amendments.cancel, payer, job_id)
    world.call(amendments.cancel, payer, job_id)  # again: nothing happens
    assert world.read(job_id).status == JobStatus.CANCELLED
    statuses = [(unit.status, unit.reason) for unit in world.units(job_id)]
    assert statuses == [("uploaded", None)] + [("lost", "cancelled_by_payer")] * 3
    with pytest.raises(LeaseLost):
        at_work.commit()
    open_leases = world.all(select(Lease).where(Lease.kind == "train"))
    assert not [lease for lease in open_leases if lease.status in ("offered", "active")]
    assert "settlement.settle" not in world.wakes.names()
    assert len(world.units(job_id, status="uploaded")) == 1
    world.verify_uploaded(job_id)
    assert ("settlement.settle", ()) in world.wakes.seen


def test_job_is_cancellable_only_before_training_ends(world: World, nodes: list[str]) -> None:
    waiting, finished = world.job(), world.running(nodes, rounds=1)
    principal = Principal(world.read(waiting).payer, frozenset(), 1, "session")
    world.call(amendments.cancel, principal, waiting)
    assert world.read(waiting).status == JobStatus.CANCELLED
    assert ("settlement.settle", ()) in world.wakes.seen
    world.deliver_all(nodes)
    world.aggregate(finished)
    admin = Principal(nodes[0], frozenset({"admin"}), 1, "session")
    with pytest.raises(NotCancellable):
        world.call(amendments.cancel, admin, finished)


def test_waiting_ends_exactly_at_wait_until(world: World) -> None:
    job_id = world.job()
    end = world.read(job_id).wait_until
    assert [bid.id for bid in world.call(book.open_bids, 1, "eu", end - timedelta(seconds=1))]
    assert book.expire_due(world.database, end - timedelta(microseconds=1)) == 0
    assert book.expire_due(world.database, end) == 1
    assert (world.read(job_id).status, world.read(job_id).reason) == (JobStatus.EXPIRED, "expired")
    assert ("settlement.settle", ()) in world.wakes.seen
    assert world.call(book.open_bids, 1, "eu", end) == []


def test_recently_extended_job_does_not_expire(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = world.job()
    monkeypatch.setattr(jobs_repository, "jobs_past_waiting", lambda *_: [job_id])  # as it was read before
    book.expire_due(world.database, utc_now())
    assert world.read(job_id).status == JobStatus.MATCHING


def _retire(world: World, nodes: list[str]) -> None:
    world.execute(update(AskRow).where(AskRow.provider.in_(nodes)).values(status="cancelled"))
