"""Uploaded pieces and files: accepted, released, replaced, and counted against a quota."""

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit.api.upload_fixtures import Node, complete, file_cid, pieces_of, stored
from kit.jobs.jobs_fixtures import World
from sqlalchemy import select

from market.platform.db.base import utc_now
from market.platform.http.services import Services
from market.platform.storage import quota
from market.platform.storage.client import Storage
from market.platform.storage.errors import StorageUnavailable
from market.platform.storage.models import BlobUpload
from market.training.leases.schemas import CompletePublish
from market.training.uploads import service as uploads
from zoo_compute.base.errors import ApiError
from zoo_compute.node.work.uploads import measured_rate
from zoo_protocol.content.unixfs import PIECE_BYTES, cid_of_file


def test_unit_uploads_one_payload_and_releases_unaccepted_ones(
    node: Node, world: World, services: Services, tmp_path: Path
) -> None:
    lease = node.lease("train")
    files = [tmp_path / "one", tmp_path / "two"]
    limit = None
    for number, path in enumerate(files):
        content = b"nobody else's %d" % number * 8_000
        path.write_bytes(content)
        cid = cid_of_file(content)
        limit = node.market.file_state(lease, cid)["max_bytes"]
        node.market.put_piece(lease, cid, 0, cid, content)
        node.market.join_pieces(lease, cid, len(content))
        assert world.storage.is_pinned(cid)
    assert limit is not None
    assert limit < 2**22
    first, second = (file_cid(path) for path in files)
    assert not world.storage.is_pinned(first)  # the second took its place
    assert uploads.delete_stale(world.database, world.storage, utc_now() - timedelta(minutes=1)) == 0
    assert uploads.delete_stale(world.database, world.storage, utc_now()) >= 1
    assert not world.storage.is_pinned(second)
    assert uploads.delete_stale(world.database, world.storage, utc_now()) == 0


def test_link_measurement_piece_is_replaced_by_payload(node: Node, world: World) -> None:
    lease = node.lease("train")
    rate = measured_rate(node.market, lease, node.link)
    assert rate > 10_000
    assert uploads.delete_stale(world.database, world.storage, utc_now()) == 1  # no unit uses it
    assert _charges(world, node.address) == []


def test_pin_with_lost_answer_is_released_with_upload(
    node: Node, state: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin, lost = Storage.pin, [True]

    def pin_and_fall_silent(storage: Storage, cid: str, *, size: int = 0) -> None:
        pin(storage, cid, size=size)
        if lost and lost.pop():
            raise StorageUnavailable("IPFS does not answer: it is still at it")

    monkeypatch.setattr(Storage, "pin", pin_and_fall_silent)
    cid = node.upload(node.lease(), state)
    assert (lost, world.storage.is_pinned(cid)) == ([], True)
    uploads.delete_stale(world.database, world.storage, utc_now())  # the node did not complete its lease
    assert not world.storage.is_pinned(cid)


def test_node_cannot_release_file_of_other(node: Node, world: World, tmp_path: Path) -> None:
    content = b"a dataset" * 10_000
    cid = world.storage.put(content, max_bytes=2**20).cid  # another uploader stored it
    lease = node.lease("train")
    node.market.put_piece(lease, cid, 0, cid, content)
    node.market.join_pieces(lease, cid, len(content))
    uploads.delete_stale(world.database, world.storage, utc_now())
    assert world.storage.is_pinned(cid)


def _charges(world: World, address: str) -> list[int]:
    return world.all(select(BlobUpload.charged).where(BlobUpload.account == address).order_by(BlobUpload.id))


def test_unused_pieces_count_against_node_quota(node: Node, state: Path, world: World) -> None:
    """Replacing pieces repeatedly must not avoid the limit of a lease."""
    lease, cid, pieces = node.lease(), file_cid(state), pieces_of(state)
    for _ in range(2):  # the same again is no other piece
        node.market.put_piece(lease, cid, 0, cid_of_file(pieces[1]), pieces[1])
    assert _charges(world, node.address) == []
    node.market.put_piece(lease, cid, 0, cid_of_file(pieces[0]), pieces[0])
    assert _charges(world, node.address) == [PIECE_BYTES]
    with pytest.raises(ApiError) as refused:
        node.market.join_pieces(lease, cid, 0)  # whole, but another file
    assert refused.value.code == "wrong-file"
    assert _charges(world, node.address) == [PIECE_BYTES] * 2
    assert node.upload(lease, state) == cid
    other = b"after it was joined"
    node.market.put_piece(lease, cid, 0, cid_of_file(other), other)
    assert not stored(world, cid_of_file(other))
    with world.database.transaction() as session:  # as one that was uploaded at once
        size = state.stat().st_size
        quota.record_stored(session, quota.charge(session, node.address, size, 2**40), cid, size)
    complete(node, lease, cid)
    assert _charges(world, node.address) == [PIECE_BYTES] * 2  # accepted bytes no longer count


def test_accepted_files_are_kept(node: Node, state: Path, world: World) -> None:
    lease = node.lease()
    cid = node.upload(lease, state)
    view: Any = SimpleNamespace(id=lease.id)
    world.complete(view, node.address, CompletePublish(token=lease.token, published_cid=cid))
    assert uploads.delete_stale(world.database, world.storage, utc_now()) == 0  # it is the unit's now
    assert world.storage.is_pinned(cid)
