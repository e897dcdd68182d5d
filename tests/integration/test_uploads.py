"""Large files of units in pieces, over HTTP: interrupted and continued, refused, joined, forgotten, released."""

import json
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from api_support import refusal
from jobs_world import World
from sqlalchemy import select

from market.api.services import Services
from market.db.base import utc_now
from market.jobs import aggregation, leases, publishing, uploads
from market.jobs.lease_schemas import CompletePublish
from market.jobs.models import Unit
from market.storage import quota
from market.storage.errors import BlobNotFound, StorageUnavailable
from market.storage.models import BlobUpload
from market.storage.service import Storage
from zoo_compute.blockstore import BlockStore
from zoo_compute.errors import ApiError
from zoo_compute.http import Connection
from zoo_compute.link import Link
from zoo_compute.node.held import HeldLease
from zoo_compute.node.market import Lease, Market
from zoo_compute.node.uploads import measured_rate, upload_file
from zoo_compute.wallet import Wallet
from zoo_protocol.unixfs import PIECE_BYTES, cid_of_file

MODEL = {"hidden_size": 320, "num_layers": 1, "num_heads": 4, "sequence_length": 8}
"""1.4 million parameters: a slot state of three pieces."""
TRAINING = {"rounds": 4, "inner_steps": 4, "segment_steps": 2, "warmup_steps": 1, "batch_size": 2}


class Stopped(BaseException):
    """This process ended here."""


class Node:
    """A node's side: its wallet, its file and its connection, anew for each life of its process."""

    def __init__(self, world: World, api: httpx.Client, address: str) -> None:
        self.world, self.address = world, address
        self.key = "0x" + bytes(world.wallets[address].key).hex()
        self.url = str(api.base_url).rstrip("/")
        self.restart()

    def restart(self) -> None:
        self.link = Link()
        self.market = Market(Connection(self.url, wallet=Wallet(self.key), link=self.link))

    def lease(self, kind: str = "publish") -> Lease:
        lease = self.market.next_lease([kind], 0)
        assert lease is not None
        return lease

    def upload(self, lease: Lease, path: Path, *, stop_after: int | None = None) -> str:
        """Upload the file; the process ends before it sends another piece after ``stop_after`` of them."""
        sent, put = 0, self.market.put_piece

        def count(*arguments: Any) -> None:
            nonlocal sent
            if sent == stop_after:
                raise Stopped
            put(*arguments)
            sent += 1

        self.market.put_piece = count  # type: ignore[method-assign]
        self.sent = 0
        try:
            with HeldLease(self.market, lease) as held:
                return upload_file(self.market, held, path, self.link)
        finally:
            self.sent = sent
            self.market.put_piece = put  # type: ignore[method-assign]


@pytest.fixture
def node(world: World, api: httpx.Client, tmp_path: Path) -> Node:
    """A node that is asked to publish the slot state of the first unit of a job."""
    node = Node(world, api, world.node())
    job_id = world.running(
        [node.address], document={**world.spec.to_dict(), "model_config": MODEL} | {"training_config": TRAINING}
    )
    world.deliver(node.address)
    aggregation.aggregate(world.database, world.settings, world.storage, job_id)
    world.dispatch(job_id)
    return node


@pytest.fixture
def state(node: Node, tmp_path: Path) -> Path:
    """The slot state that it is asked for."""
    cid = node.world.rows(lambda session: session.scalars(select(Unit.slot_state_cid).where(Unit.round == 0)).one())
    content = node.world.kept[node.address][cid]
    path = tmp_path / "state"
    path.write_bytes(content)
    assert -(-len(content) // PIECE_BYTES) == 3
    return path


def _cid(path: Path) -> str:
    return cid_of_file(path.read_bytes())


def _complete(node: Node, lease: Lease, cid: str) -> None:
    node.market.complete(lease, {"published_cid": cid})


def _stored(world: World, cid: str) -> bool:
    try:
        world.storage.get(cid, max_bytes=2**26)
    except BlobNotFound:
        return False
    return True


def _pieces(path: Path) -> list[bytes]:
    content = path.read_bytes()
    return [content[start : start + PIECE_BYTES] for start in range(0, len(content), PIECE_BYTES)]


def test_an_upload_that_was_interrupted_goes_on_in_another_lease_and_process(
    node: Node, state: Path, world: World
) -> None:
    first = node.lease()
    with pytest.raises(Stopped):
        node.upload(first, state, stop_after=2)
    assert not _stored(world, _cid(state))
    with world.database.transaction() as session:
        leases.fail(session, first.id, node.address, first.token, leases.NODE_STOPPING, "restarted")
    before = node.link.up.bytes
    world.dispatch(first.job_id)
    node.restart()
    second = node.lease()
    assert second.id != first.id
    cid = node.upload(second, state)
    assert (cid, node.sent) == (_cid(state), 1)
    assert before + node.link.up.bytes < state.stat().st_size + 10_000  # nothing of the file went twice
    _complete(node, second, cid)
    assert world.storage.is_pinned(cid)
    assert world.storage.get(cid, max_bytes=2**26) == state.read_bytes()
    [unit] = world.units(second.job_id, round=0)
    assert unit.slot_state_public
    node.market.complete(second, {"published_cid": cid})  # repeating it changes nothing


def test_a_process_that_is_killed_in_the_middle_sends_again_what_was_on_its_way(
    node: Node, state: Path, world: World
) -> None:
    lease = node.lease()
    script = """
import json, sys
from pathlib import Path
from zoo_compute.http import Connection
from zoo_compute.link import Link
from zoo_compute.node.held import HeldLease
from zoo_compute.node.market import Lease, Market
from zoo_compute.node.uploads import measured_rate, upload_file
from zoo_compute.wallet import Wallet
url, key, lease, path = sys.argv[1:]
link = Link(mbps=16)
market = Market(Connection(url, wallet=Wallet(key), link=link))
with HeldLease(market, Lease.from_dict(json.loads(lease))) as held:
    upload_file(market, held, Path(path), link)
"""
    arguments = [node.url, node.key, json.dumps(lease.as_dict()), str(state)]
    process = subprocess.Popen([sys.executable, "-c", script, *arguments])
    until = time.monotonic() + 300
    while not node.market.file_state(lease, _cid(state))["pieces"]:
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    have = len(node.market.file_state(lease, _cid(state))["pieces"])
    assert 1 <= have < 3
    cid = node.upload(lease, state)  # the lease is taken up again, as the node's journal says
    assert node.sent == 3 - have
    assert node.link.up.bytes < (3 - have) * PIECE_BYTES + 10_000
    _complete(node, lease, cid)
    assert world.units(lease.job_id, round=0)[0].slot_state_public


def test_a_file_that_is_there_is_not_sent_at_all(node: Node, state: Path, world: World) -> None:
    assert world.storage.put(state.read_bytes(), max_bytes=2**26).cid == _cid(state)
    lease = node.lease()
    assert node.upload(lease, state) == _cid(state)
    assert (node.sent, node.link.up.bytes < 10_000) == (0, True)
    _complete(node, lease, _cid(state))


@pytest.mark.parametrize(
    ("number", "piece", "reason", "field"),
    [
        (0, b"other bytes", "piece_mismatch", "piece_cid"),
        (0, b"", "piece_empty", "body"),
        (2, b"full", "file_too_large", "body"),
        (3, b"one more", "file_too_large", "number"),
    ],
)
def test_a_wrong_piece_is_refused_with_a_reason(
    node: Node, state: Path, api: httpx.Client, number: int, piece: bytes, reason: str, field: str
) -> None:
    lease, cid = node.lease(), _cid(state)
    content = bytes(PIECE_BYTES) if piece == b"full" else piece
    claimed = cid_of_file(_pieces(state)[0] if reason == "piece_mismatch" else content)
    with pytest.raises(ApiError) as refused:
        node.market.put_piece(lease, cid, number, claimed, content)
    assert (refused.value.code, refused.value.field) == ("piece-refused", field)
    assert refused.value.extra["reason"] == reason
    assert refused.value.remedy
    assert node.market.file_state(lease, cid)["pieces"] == {}


def test_a_piece_beyond_its_size_is_refused_before_it_is_read(node: Node, state: Path) -> None:
    content = bytes(PIECE_BYTES + 1)
    with pytest.raises(ApiError) as refused:
        node.market.put_piece(node.lease(), _cid(state), 0, cid_of_file(content), content)
    assert refused.value.code == "body-too-large"


def test_pieces_of_another_file_are_found_when_they_are_joined_and_can_be_sent_again(node: Node, state: Path) -> None:
    lease, cid, pieces = node.lease(), _cid(state), _pieces(state)
    with pytest.raises(ApiError) as refused:
        node.market.join_pieces(lease, cid, 0)
    assert refused.value.code == "upload-incomplete"
    for number in (1, 0, 2):
        node.market.put_piece(lease, cid, number, cid_of_file(pieces[(number + 1) % 2]), pieces[(number + 1) % 2])
        if number == 1:
            with pytest.raises(ApiError) as refused:
                node.market.join_pieces(lease, cid, 0)
            assert (refused.value.code, refused.value.extra["missing"]) == ("upload-incomplete", [0])
        if number == 0:
            break
    with pytest.raises(ApiError) as refused:
        node.market.join_pieces(lease, cid, 0)
    assert refused.value.code == "wrong-file"
    assert node.upload(lease, state) == cid
    assert node.sent == 3


def test_what_storage_has_lost_is_sent_again(node: Node, state: Path, ipfs: dict[str, str]) -> None:
    lease, cid = node.lease(), _cid(state)
    with pytest.raises(Stopped):
        node.upload(lease, state, stop_after=2)
    assert BlockStore(Path(ipfs["directory"])).collect()  # what is not pinned
    assert node.upload(lease, state) == cid
    assert node.sent == 4  # the third, and then all three
    _complete(node, lease, cid)


def test_only_the_holder_sends_only_what_it_is_asked_for(
    node: Node, state: Path, world: World, api: httpx.Client
) -> None:
    lease, cid = node.lease(), _cid(state)
    for holder, token in ((world.node(), lease.token), (node.address, "0x" + "11" * 32)):
        other = Node(world, api, holder)
        forged = Lease.from_dict(lease.as_dict() | {"token": token})
        with pytest.raises(ApiError) as refused:
            other.market.file_state(forged, cid)
        assert refused.value.code == "lease-lost"
    content = b"something else"
    with pytest.raises(ApiError) as refused:
        node.market.put_piece(lease, cid_of_file(content), 0, cid_of_file(content), content)
    assert (refused.value.code, refused.value.field) == ("file-not-asked", "cid")
    pin = node.lease("pin")
    with pytest.raises(ApiError) as refused:
        node.market.file_state(pin, cid)
    assert refused.value.code == "file-not-asked"
    world.age(lease.id)
    with pytest.raises(ApiError) as refused:
        node.market.join_pieces(lease, cid, 0)
    assert refused.value.code == "lease-lost"


def test_without_a_token_or_with_no_cid_the_request_is_refused(node: Node, state: Path, api: httpx.Client) -> None:
    lease = node.lease()
    path = f"/v1/leases/{lease.id}/files/{_cid(state)}"
    refusal(api.get(path, headers={"X-Lease-Token": lease.token}), 401, "not-authenticated")
    with pytest.raises(ApiError) as refused:
        node.market.file_state(lease, "bafkreiaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
    assert refused.value.code in ("invalid-request", "file-not-asked")


def test_a_unit_uploads_one_payload_and_what_was_not_accepted_is_released(
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
    first, second = (_cid(path) for path in files)
    assert not world.storage.is_pinned(first)  # the second took its place
    assert uploads.discard_stale(world.database, world.storage, utc_now() - timedelta(minutes=1)) == 0
    assert uploads.discard_stale(world.database, world.storage, utc_now()) >= 1
    assert not world.storage.is_pinned(second)
    assert uploads.discard_stale(world.database, world.storage, utc_now()) == 0


def test_a_node_measures_its_link_by_a_piece_that_the_payload_replaces(node: Node, world: World) -> None:
    lease = node.lease("train")
    rate = measured_rate(node.market, lease, node.link)
    assert rate > 10_000
    assert uploads.discard_stale(world.database, world.storage, utc_now()) == 1  # it is nobody's
    assert _charges(world, node.address) == []


def test_a_pin_whose_answer_was_lost_is_released_with_its_upload(
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
    uploads.discard_stale(world.database, world.storage, utc_now())  # the node did not complete its lease
    assert not world.storage.is_pinned(cid)


def test_nobody_has_anothers_file_released(node: Node, world: World, tmp_path: Path) -> None:
    content = b"a dataset" * 10_000
    cid = world.storage.put(content, max_bytes=2**20).cid  # somebody put it there
    lease = node.lease("train")
    node.market.put_piece(lease, cid, 0, cid, content)
    node.market.join_pieces(lease, cid, len(content))
    uploads.discard_stale(world.database, world.storage, utc_now())
    assert world.storage.is_pinned(cid)


def _charges(world: World, address: str) -> list[int]:
    mine = select(BlobUpload.charged).where(BlobUpload.account == address).order_by(BlobUpload.id)
    return world.rows(lambda session: list(session.scalars(mine)))


def test_pieces_that_come_to_nothing_count_against_the_nodes_quota(node: Node, state: Path, world: World) -> None:
    """A lease bounds what a unit's files may have; replacing its pieces again and again must not be a way around."""
    lease, cid, pieces = node.lease(), _cid(state), _pieces(state)
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
    assert not _stored(world, cid_of_file(other))
    with world.database.transaction() as session:  # as one that was uploaded at once
        quota.note_stored(session, quota.take_room(session, node.address, state.stat().st_size, 2**40), cid)
    _complete(node, lease, cid)
    assert _charges(world, node.address) == [PIECE_BYTES] * 2  # what was accepted counts no longer


def test_what_was_accepted_stays(node: Node, state: Path, world: World) -> None:
    lease = node.lease()
    cid = node.upload(lease, state)
    world.complete(_view(lease), node.address, CompletePublish(token=lease.token, published_cid=cid))
    assert uploads.discard_stale(world.database, world.storage, utc_now()) == 0  # it is the unit's now
    assert world.storage.is_pinned(cid)


def _view(lease: Lease) -> Any:
    class View:
        id = lease.id

    return View


def test_attempts_that_brought_the_upload_on_are_not_counted(node: Node, state: Path, world: World) -> None:
    content = state.read_bytes()
    job_id = ""
    for number in range(2):  # each time it falls silent after another piece
        lease = node.lease()
        job_id = lease.job_id
        piece = content[number * PIECE_BYTES : (number + 1) * PIECE_BYTES]
        node.market.put_piece(lease, _cid(state), number, cid_of_file(piece), piece)
        world.age(lease.id)
        leases.expire_due(world.database, utc_now())
        world.dispatch(job_id)
    for _ in range(publishing.MAX_ATTEMPTS):  # and then without one
        lease = node.lease()
        world.age(lease.id)
        leases.expire_due(world.database, utc_now())
        world.dispatch(job_id)
    assert node.market.next_lease(["publish"], 0) is None


def test_a_verifier_of_another_class_uploads_its_end_state_in_pieces_and_other_verifiers_nothing(
    node: Node, world: World, api: httpx.Client, tmp_path: Path
) -> None:
    verifier = Node(world, api, world.node())
    with world.database.transaction() as session:
        unit = session.scalars(select(Unit).where(Unit.round == 0)).one()
    end = tmp_path / "end"
    end.write_bytes(bytes(2 * PIECE_BYTES + 1))
    for task in ({"segment": 1, "across": True}, {"segment": 1}):
        with world.database.transaction() as session:
            leases.create_lease(
                session,
                kind="replay",
                holder=verifier.address,
                job_id=unit.job_id,
                task=task,
                unit_id=unit.id,
                seconds=600,
            )
    cid = verifier.upload(verifier.lease("replay"), end)
    assert (cid, verifier.sent) == (_cid(end), 3)
    assert world.storage.is_pinned(cid)
    with pytest.raises(ApiError) as refused:
        verifier.upload(verifier.lease("replay"), end)
    assert refused.value.code == "file-not-asked"
