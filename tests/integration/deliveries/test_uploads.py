"""Large files of units in pieces, over HTTP: interrupted and continued, refused, joined."""

import json
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import httpx
import pytest
from kit.api.clients import refusal
from kit.api.upload_fixtures import Node, Stopped, complete, file_cid, pieces_of, stored
from kit.errors import raises_code
from kit.jobs.jobs_fixtures import World
from kit.waiting import wait_until
from sqlalchemy import select

from market.domain.lifecycle import NODE_STOPPING
from market.platform.db.base import utc_now
from market.training.leases import expiry
from market.training.leases import service as leases
from market.training.replication import slot_state_uploads
from market.training.units.models import Unit
from zoo_compute.base.errors import ApiError
from zoo_compute.content.blockstore import BlockStore
from zoo_compute.node.market.calls import Lease
from zoo_protocol.content.unixfs import PIECE_BYTES, cid_of_file


def test_interrupted_upload_resumes_in_another_lease_and_process(node: Node, state: Path, world: World) -> None:
    first = node.lease()
    with pytest.raises(Stopped):
        node.upload(first, state, stop_after=2)
    assert not stored(world, file_cid(state))
    world.call(leases.fail, first.id, node.address, first.token, NODE_STOPPING, "restarted")
    before = node.link.up.bytes
    world.dispatch(first.job_id)
    node.restart()
    second = node.lease()
    assert second.id != first.id
    cid = node.upload(second, state)
    assert (cid, node.sent) == (file_cid(state), 1)
    assert before + node.link.up.bytes < state.stat().st_size + 10_000  # nothing of the file went twice
    complete(node, second, cid)
    assert world.storage.is_pinned(cid)
    assert world.storage.get(cid, max_bytes=2**26) == state.read_bytes()
    [unit] = world.units(second.job_id, round=0)
    assert unit.slot_state_public
    node.market.complete(second, {"published_cid": cid})  # repeating it changes nothing


@pytest.mark.long
def test_killed_upload_resends_pieces_in_flight(node: Node, state: Path, world: World) -> None:
    lease = node.lease()
    script = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from zoo_compute.client.http import Connection
from zoo_compute.base.link import Link
from zoo_compute.node.work.held_lease import HeldLease
from zoo_compute.node.market.calls import Lease, Market
from zoo_compute.node.work.uploads import measured_rate, upload_file
from zoo_compute.chain.wallet import Wallet
url, key, lease, path = sys.argv[1:]
link = Link(mbps=8)  # four seconds for each of the three pieces
market = Market(Connection(url, wallet=Wallet(key), link=link))
with HeldLease(market, Lease.from_dict(json.loads(lease))) as held:
    upload_file(market, held, Path(path), link)
"""
    arguments = [node.url, node.key, json.dumps(asdict(lease)), str(state)]
    process = subprocess.Popen([sys.executable, "-c", script, *arguments])

    def has_begun() -> object:
        assert process.poll() is None
        return node.market.file_state(lease, file_cid(state))["pieces"]

    wait_until(has_begun, seconds=300)
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    have = len(node.market.file_state(lease, file_cid(state))["pieces"])
    assert 1 <= have < 3
    cid = node.upload(lease, state)  # the lease is taken up again, as the node's journal says
    assert node.sent == 3 - have
    assert node.link.up.bytes < (3 - have) * PIECE_BYTES + 10_000
    complete(node, lease, cid)
    assert world.units(lease.job_id, round=0)[0].slot_state_public


def test_stored_file_is_not_sent(node: Node, state: Path, world: World) -> None:
    assert world.storage.put(state.read_bytes(), max_bytes=2**26).cid == file_cid(state)
    lease = node.lease()
    assert node.upload(lease, state) == file_cid(state)
    assert (node.sent, node.link.up.bytes < 10_000) == (0, True)
    complete(node, lease, file_cid(state))


@pytest.mark.parametrize(
    ("number", "piece", "reason", "field"),
    [
        (0, b"other bytes", "piece_mismatch", "piece_cid"),
        (0, b"", "piece_empty", "body"),
        (2, b"full", "file_too_large", "body"),
        (3, b"one more", "file_too_large", "number"),
    ],
)
def test_wrong_piece_is_refused_with_reason(
    node: Node, state: Path, api: httpx.Client, number: int, piece: bytes, reason: str, field: str
) -> None:
    lease, cid = node.lease(), file_cid(state)
    content = bytes(PIECE_BYTES) if piece == b"full" else piece
    claimed = cid_of_file(pieces_of(state)[0] if reason == "piece_mismatch" else content)
    with pytest.raises(ApiError) as refused:
        node.market.put_piece(lease, cid, number, claimed, content)
    assert (refused.value.code, refused.value.field) == ("piece-refused", field)
    assert refused.value.extra["reason"] == reason
    assert refused.value.remedy
    assert node.market.file_state(lease, cid)["pieces"] == {}


def test_oversized_piece_is_refused_before_reading(node: Node, state: Path) -> None:
    content = bytes(PIECE_BYTES + 1)
    with raises_code(ApiError, "body-too-large"):
        node.market.put_piece(node.lease(), file_cid(state), 0, cid_of_file(content), content)


def test_foreign_pieces_are_detected_on_joining_and_resendable(node: Node, state: Path) -> None:
    lease, cid, pieces = node.lease(), file_cid(state), pieces_of(state)
    with raises_code(ApiError, "upload-incomplete"):
        node.market.join_pieces(lease, cid, 0)
    for number in (1, 0, 2):
        node.market.put_piece(lease, cid, number, cid_of_file(pieces[(number + 1) % 2]), pieces[(number + 1) % 2])
        if number == 1:
            with pytest.raises(ApiError) as refused:
                node.market.join_pieces(lease, cid, 0)
            assert (refused.value.code, refused.value.extra["missing"]) == ("upload-incomplete", [0])
        if number == 0:
            break
    with raises_code(ApiError, "wrong-file"):
        node.market.join_pieces(lease, cid, 0)
    assert node.upload(lease, state) == cid
    assert node.sent == 3


def test_pieces_lost_by_storage_are_resent(node: Node, state: Path, ipfs: dict[str, str]) -> None:
    lease, cid = node.lease(), file_cid(state)
    with pytest.raises(Stopped):
        node.upload(lease, state, stop_after=2)
    assert BlockStore(Path(ipfs["directory"])).collect()  # removes unpinned blocks
    assert node.upload(lease, state) == cid
    assert node.sent == 4  # the third, and then all three
    complete(node, lease, cid)


def test_only_holder_sends_only_requested_pieces(node: Node, state: Path, world: World, api: httpx.Client) -> None:
    lease, cid = node.lease(), file_cid(state)
    for holder, token in ((world.node(), lease.token), (node.address, "0x" + "11" * 32)):
        other = Node(world, api, holder, node.domain)
        forged = Lease.from_dict(asdict(lease) | {"token": token})
        with raises_code(ApiError, "lease-lost"):
            other.market.file_state(forged, cid)
    content = b"something else"
    with pytest.raises(ApiError) as refused:
        node.market.put_piece(lease, cid_of_file(content), 0, cid_of_file(content), content)
    assert (refused.value.code, refused.value.field) == ("file-not-asked", "cid")
    pin = node.lease("pin")
    with raises_code(ApiError, "file-not-asked"):
        node.market.file_state(pin, cid)
    world.age(lease.id)
    with raises_code(ApiError, "lease-lost"):
        node.market.join_pieces(lease, cid, 0)


def test_upload_without_token_or_cid_is_refused(node: Node, state: Path, api: httpx.Client) -> None:
    lease = node.lease()
    path = f"/v1/leases/{lease.id}/files/{file_cid(state)}"
    refusal(api.get(path, headers={"X-Lease-Token": lease.token}), 401, "not-authenticated")
    with pytest.raises(ApiError) as refused:
        node.market.file_state(lease, "bafkreiaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
    assert refused.value.code in ("invalid-request", "file-not-asked")


def test_attempts_with_progress_are_not_counted(node: Node, state: Path, world: World) -> None:
    content = state.read_bytes()
    job_id = ""
    for number in range(2):  # each time it falls silent after another piece
        lease = node.lease()
        job_id = lease.job_id
        piece = content[number * PIECE_BYTES : (number + 1) * PIECE_BYTES]
        node.market.put_piece(lease, file_cid(state), number, cid_of_file(piece), piece)
        world.age(lease.id)
        expiry.expire_due(world.database, utc_now())
        world.dispatch(job_id)
    for _ in range(slot_state_uploads.MAX_ATTEMPTS):  # and then without one
        lease = node.lease()
        world.age(lease.id)
        expiry.expire_due(world.database, utc_now())
        world.dispatch(job_id)
    assert node.poll("publish") is None


def test_only_cross_class_verifier_uploads_end_state(
    node: Node, world: World, api: httpx.Client, tmp_path: Path
) -> None:
    verifier = Node(world, api, world.node(), node.domain)
    unit = world.one(select(Unit).where(Unit.round == 0))
    end = tmp_path / "end"
    end.write_bytes(bytes(2 * PIECE_BYTES + 1))
    for task in ({"segment": 1, "across": True}, {"segment": 1}):
        world.call(
            leases.create_lease,
            kind="replay",
            holder=verifier.address,
            job_id=unit.job_id,
            task=task,
            unit_id=unit.id,
            seconds=600,
        )
    cid = verifier.upload(verifier.lease("replay"), end)
    assert (cid, verifier.sent) == (file_cid(end), 3)
    assert world.storage.is_pinned(cid)
    with raises_code(ApiError, "file-not-asked"):
        verifier.upload(verifier.lease("replay"), end)
