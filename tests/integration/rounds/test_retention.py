"""Deletion of old jobs and rounds, and records that the market keeps permanently."""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from kit.api.clients import sign_in
from kit.errors import raising
from kit.jobs.jobs_fixtures import TEXT, World
from sqlalchemy import func, select, update

from market.auctions import service as auctions
from market.auctions.models import AuctionRound
from market.domain.lifecycle import JobStatus
from market.domain.network import DEVNET
from market.jobs.models import Job
from market.platform.db.base import utc_now
from market.platform.events.models import AuditEvent, JobEventRow
from market.platform.storage.client import Storage
from market.platform.storage.errors import BlobNotFound, StorageUnavailable
from market.training.checkpoints import own_pins
from market.training.checkpoints.models import Checkpoint, Pin
from market.training.leases.models import Lease
from market.training.replication import release
from market.training.retention import service as retention
from market.training.rounds.first_checkpoint import build_initial_checkpoint
from market.training.units.models import Unit
from training_gym.data.dataset import DatasetManifest, describe_shard
from training_gym.spec.manifests import MAX_MANIFEST_BYTES
from training_gym.units.checkpoint import CheckpointManifest
from training_gym.units.continuations import continuation
from zoo_compute.audit.auction import replay
from zoo_compute.base.errors import Mismatch
from zoo_compute.content.blockstore import BlockStore

KEPT = timedelta(days=180)
DAY = timedelta(days=1)
HASH = "0x" + "ab" * 32


@pytest.fixture
def trained(world: World, nodes: list[str]) -> str:
    job_id = world.running(nodes[:2])
    for _ in range(2):
        world.train_round(job_id, nodes[:2])
        for node in nodes[:2]:
            while world.publish(node) or world.pin(node):
                pass
    return job_id


def end(world: World, job_id: str, ago: timedelta) -> None:
    world.change(Job, job_id, status="settled", settled_at=utc_now() - ago)


def forget(world: World, storage: Storage | None = None) -> int:
    return retention.purge_expired(world.database, storage or world.storage, KEPT, utc_now())


def count(world: World, row: Any, job_id: str) -> int:
    return int(world.scalar(select(func.count()).where(row.job_id == job_id)))


def checkpoints(world: World, job_id: str) -> list[Checkpoint]:
    return world.all(select(Checkpoint).where(Checkpoint.job_id == job_id).order_by(Checkpoint.round))


def public_states(world: World, job_id: str) -> list[str]:
    return [str(unit.slot_state_cid) for unit in world.units(job_id) if unit.slot_state_public]


def pinned(world: World, cids: Sequence[str | None]) -> set[bool]:
    assert cids
    return {world.storage.is_pinned(cid) for cid in cids if cid is not None}


def stored(world: World, files: Sequence[str], ipfs: dict[str, str]) -> set[bool]:
    """Collect garbage; return True for files that storage still has, False for others."""
    BlockStore(Path(ipfs["directory"])).collect()
    found = set()
    for cid in files:
        try:
            found.add(bool(world.storage.get(cid, max_bytes=2**24)))
        except BlobNotFound:
            found.add(False)
    return found


def for_training(world: World, job_id: str) -> list[str]:
    found = []
    for checkpoint in checkpoints(world, job_id)[:-1]:
        manifest = CheckpointManifest.from_bytes(world.storage.get(checkpoint.cid, max_bytes=MAX_MANIFEST_BYTES))
        found += [cid for cid in (manifest.outer_state, manifest.update) if cid is not None]
    return found


def test_old_job_keeps_files_needed_for_receipt(
    world: World, trained: str, ipfs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "ROWS_PER_BATCH", 3)  # as of a job with many
    monkeypatch.setattr(release, "FILES_PER_BATCH", 1)
    units, states = world.units(trained), public_states(world, trained)
    gone = {*for_training(world, trained), *states}
    payloads = {unit.payload_cid for unit in units if unit.payload_cid is not None}
    of_checkpoints = {cid for one in checkpoints(world, trained) for cid in one.file_cids} - gone
    assert {cid for one in checkpoints(world, trained) for cid in (one.cid, one.model_cid)} <= of_checkpoints
    assert len(units) == 4
    assert len(gone) > len(states) > 0
    assert count(world, Lease, trained) > 4
    end(world, trained, KEPT - DAY)
    assert forget(world) == 0
    assert stored(world, [*gone, *payloads, *of_checkpoints], ipfs) == {True}
    end(world, trained, KEPT + DAY)
    assert forget(world) == 1

    assert pinned(world, [*gone]) == {False}
    assert stored(world, [*payloads, *of_checkpoints], ipfs) == {True}
    assert {cid for one in checkpoints(world, trained) for cid in one.file_cids} == of_checkpoints
    assert not public_states(world, trained)
    assert (count(world, Lease, trained), count(world, JobEventRow, trained)) == (0, 0)
    assert world.scalar(select(func.count()).select_from(Pin)) == 0
    assert world.scalar(select(func.count()).select_from(AuditEvent))
    assert forget(world) == 0


@pytest.mark.parametrize(
    ("reason", "loss"), [("completed", "9.000000"), ("diverged", "9.000000"), ("cancelled_by_payer", "3.100000")]
)
def test_files_to_extend_spoiled_job_are_kept(world: World, nodes: list[str], reason: str, loss: str) -> None:
    job_id = world.running(nodes[:2], rounds=3)
    for _ in range(2):
        world.train_round(job_id, nodes[:2])
    _, best, spoiled = checkpoints(world, job_id)
    for one, known in ((best, "3.000000"), (spoiled, loss)):
        world.change(Checkpoint, one.id, validation_loss=known)
    if reason == "completed":
        world.train_round(job_id, nodes[:2])
    elif reason == "cancelled_by_payer":
        world.diverge(nodes[:2])
    last = checkpoints(world, job_id)[-1]
    world.change(Job, job_id, reason=reason)
    end(world, job_id, KEPT + DAY)
    assert forget(world) == 1
    needed = last if reason == "completed" else best
    assert (last.rolled_back_to, best.file_cids[2]) == (1 if needed is last else None, needed.file_cids[2])
    assert pinned(world, [*needed.file_cids, *last.file_cids]) == {True}
    assert pinned(world, [spoiled.file_cids[2]]) == {needed is best}
    kept = {one.id: one.file_cids for one in checkpoints(world, job_id)}
    assert (kept[needed.id], kept[last.id]) == (needed.file_cids, last.file_cids)


def test_outer_state_at_start_of_continuation_is_kept(world: World, nodes: list[str], trained: str) -> None:
    start = checkpoints(world, trained)[1]
    outer_state = world.manifest(trained, 1).outer_state
    document = continuation(world.read(trained).spec, 2, start.cid, 2)
    continued = world.running(nodes[:2], document=document)
    for _ in range(2):
        world.train_round(continued, nodes[:2])
    for job_id in trained, continued:
        end(world, job_id, KEPT + DAY)
    assert forget(world) == 2
    assert world.manifest(continued, 0).outer_state == outer_state
    assert pinned(world, [start.cid, outer_state]) == {True}


def test_payload_equal_to_update_is_kept(world: World, nodes: list[str]) -> None:
    plain = replace(world.spec.training, outer_learning_rate=1.0, outer_momentum=0.0)
    job_id = world.running(nodes[:1], document=replace(world.spec, training=plain).to_dict())
    for _ in range(2):
        world.train_round(job_id, nodes[:1])
    first, *_ = world.units(job_id)
    assert first.payload_cid == world.manifest(job_id, 1).update
    end(world, job_id, KEPT + DAY)
    assert forget(world) == 1
    assert pinned(world, [first.payload_cid]) == {True}


def test_evidence_replica_states_are_kept(world: World, trained: str) -> None:
    first, second = ([unit for unit in world.units(trained) if unit.round == round_] for round_ in (0, 1))
    rejected, other = second
    began_with = {unit.slot: unit for unit in first}[rejected.slot]
    public = [str(unit.slot_state_cid) for unit in (began_with, rejected, other)]
    for unit in (began_with, rejected, other):
        world.storage.put(world.kept[unit.provider][str(unit.slot_state_cid)], max_bytes=2**24)
    world.execute(update(Unit).where(Unit.id == rejected.id).values(status="rejected"))
    world.execute(update(Unit).values(slot_state_public=True))
    end(world, trained, KEPT + DAY)
    assert forget(world) == 1
    assert pinned(world, public[:2]) == {True}
    assert pinned(world, public[2:]) == {False}


@pytest.mark.long
def test_files_shared_with_recent_job_are_kept(world: World, nodes: list[str], trained: str) -> None:
    copy = world.running(nodes[2:])
    outer, state = for_training(world, trained)[0], public_states(world, trained)[0]
    (own,) = checkpoints(world, copy)
    unit = world.units(copy)[0]
    world.change(Checkpoint, own.id, file_cids=[*own.file_cids, outer])
    world.change(Unit, unit.id, start_slot_state_cid=state)
    end(world, trained, KEPT + DAY)
    assert forget(world) == 1
    assert pinned(world, [outer, state]) == {True}


def test_file_stored_again_during_release_is_kept(
    world: World, nodes: list[str], trained: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of the job stores the file between check and release, and the process ends."""
    copy = world.running(nodes[2:])
    again = for_training(world, trained)[0]
    real = Storage.unpin

    def unpin(storage: Storage, cid: str) -> None:
        world.execute(update(Checkpoint).where(Checkpoint.job_id == copy).values(file_cids=[again]))
        real(storage, cid)

    end(world, trained, KEPT + DAY)
    with monkeypatch.context() as patch:
        patch.setattr(Storage, "unpin", unpin)
        patch.setattr(Storage, "pin", raising(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            forget(world)
    assert pinned(world, [again]) == {False}
    assert forget(world) == 1
    assert pinned(world, [again]) == {True}


def test_job_is_not_marked_while_storage_down(world: World, trained: str) -> None:
    end(world, trained, KEPT + DAY)
    assert forget(world, Storage("http://127.0.0.1:1", timeout=1.0)) == 0
    assert count(world, Lease, trained)
    assert forget(world) == 1


@pytest.fixture
def unmatched(world: World) -> str:
    """Return an order with its first checkpoint, whose dataset no upload pinned."""
    text = TEXT + secrets.token_hex(16).encode()
    split = describe_shard(world.storage.put(text, max_bytes=2**20, pin=False).cid, text)
    manifest = DatasetManifest((split,), (split,)).to_bytes()
    world.spec = replace(world.spec, dataset=world.storage.put(manifest, max_bytes=2**20, pin=False).cid)
    return dispatched(world)


def dispatched(world: World) -> str:
    job_id = world.job()
    world.dispatch(job_id)
    return job_id


def files_of(world: World, job_id: str) -> list[str]:
    """Return the CIDs of the job's dataset, two, and of its first checkpoint."""
    dataset = own_pins.dataset_files(world.storage, world.spec)
    return [*dict.fromkeys(one.cid for one in dataset), *checkpoints(world, job_id)[0].file_cids]


def test_order_without_nodes_releases_its_files(world: World, unmatched: str, ipfs: dict[str, str]) -> None:
    files = files_of(world, unmatched)
    own = [one.owned_cid(unmatched) for one in own_pins.stored_files(world.storage, files)]
    end(world, unmatched, DAY - timedelta(minutes=1))
    assert forget(world) == 0
    end(world, unmatched, DAY)
    with world.database.advisory_lock(f"checkpoint:{unmatched}"):  # a worker still pins its dataset
        assert forget(world) == 0
    assert forget(world, Storage("http://127.0.0.1:1", timeout=1.0)) == 0
    assert (pinned(world, own), stored(world, files, ipfs)) == ({True}, {True})
    assert forget(world) == 1
    assert (pinned(world, own), stored(world, files[:2], ipfs)) == ({False}, {False})
    assert checkpoints(world, unmatched) == []
    assert forget(world) == 0


@pytest.mark.parametrize("kept_by", ["order", "job", "upload"])
def test_release_leaves_files_of_others(
    world: World, nodes: list[str], unmatched: str, ipfs: dict[str, str], kept_by: str
) -> None:
    files = files_of(world, unmatched)[:2]
    if kept_by == "upload":
        for cid in files:
            world.storage.pin(cid)
    else:
        files = files_of(world, dispatched(world) if kept_by == "order" else world.running(nodes))
    end(world, unmatched, DAY)
    assert forget(world) == 1
    assert stored(world, files, ipfs) == {True}


def test_collected_node_above_input_ends_no_job(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = world.job()
    with monkeypatch.context() as patch:
        patch.setattr(Storage, "put_owned", lambda _, file, owner: file.owned_cid(owner))
        with pytest.raises(StorageUnavailable):
            world.dispatch(job_id)
    world.dispatch(job_id)
    assert world.read(job_id).status == JobStatus.MATCHING
    assert len(checkpoints(world, job_id)) == 1


def test_ended_order_builds_no_checkpoint(world: World) -> None:
    """Its release may be over."""
    job_id = world.job()
    end(world, job_id, DAY)
    assert build_initial_checkpoint(world.database, world.settings, world.storage, job_id) is None
    assert checkpoints(world, job_id) == []


def test_hot_spares_of_old_job_receive_end(api: httpx.Client, world: World, trained: str) -> None:
    caller = sign_in(api)
    world.execute(update(Job).where(Job.id == trained).values(payer=caller.address))
    seen = world.scalar(select(func.max(JobEventRow.id)))
    end(world, trained, KEPT + DAY)
    assert forget(world) == 1
    for last in ({}, {"Last-Event-ID": str(seen)}):
        answer = caller.get(f"/v1/jobs/{trained}/events", headers=last)
        assert (answer.status_code, "event:" in answer.text) == (200, False)


def auction(world: World, number: int, cleared: timedelta, tier: int = 9) -> int:
    row = AuctionRound(
        tier_id=tier,
        zone="eu",
        number=number,
        status="cleared",
        reason="traded",
        secret=HASH,
        commitment=HASH,
        closes_at=utc_now(),
        cleared_at=utc_now() - cleared,
        book={"bids": [{"id": "b0"}]},
        book_hash=HASH,
        owners={"bids": {"b0": HASH}, "asks": {}},
        rule="posted",
        price_wei=10**18,
        volume_us=1,
        waits_ms=[1],
    )
    world.add(row)
    return row.id


def test_orders_of_old_rounds_go_and_prices_stay(world: World, trained: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auctions, "_ROUNDS_PER_BATCH", 2)
    old = [auction(world, number, KEPT + DAY) for number in range(5)]
    recent, needed = auction(world, 5, KEPT - DAY), auction(world, 6, KEPT + DAY)
    world.change(Job, trained, auction_round_id=needed)  # its record has to name its order

    def with_orders() -> set[int]:
        return set(world.all(select(AuctionRound.id).where(AuctionRound.owners["bids"].is_not(None))))

    assert with_orders() == {*old, recent, needed}
    assert auctions.purge_orders(world.database, KEPT, utc_now()) == 5
    assert with_orders() == {recent, needed}
    prices = select(func.count()).where(AuctionRound.price_wei == 10**18, AuctionRound.book_hash == HASH)
    assert world.scalar(prices) == 7
    end(world, trained, DAY)
    assert auctions.purge_orders(world.database, KEPT, utc_now()) == 1


def test_round_without_orders_reports_it(api: httpx.Client, world: World) -> None:
    auction(world, 0, KEPT + DAY, tier=next(tier.id for tier in DEVNET.tiers if tier.name == "bronze"))
    auctions.purge_orders(world.database, KEPT, utc_now())
    found = api.get("/v1/auctions/bronze.eu/rounds/0").json()
    assert (found["orders"], found["book_hash"], found["price_wei_per_gpu_hour"]) == (None, HASH, str(10**18))
    with pytest.raises(Mismatch) as error:
        replay(found, None)
    assert error.value.code == "orders-gone"
