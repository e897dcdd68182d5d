"""The market's storage behind a proxy that makes IPFS fail or answer falsely."""

import io
import multiprocessing
import os
import random
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest
from kit.engines.ipfs_processes import StoreProcess, faulty

from market.orders.errors import InvalidDataset
from market.orders.inputs import require_dataset
from market.platform.storage.client import Storage, StoredBlob
from market.platform.storage.errors import BlobCorrupt, BlobNotFound, BlobTooLarge, StorageUnavailable
from market.training.checkpoints import own_pins
from training_gym.data.dataset import MAX_SHARD_TOKENS, DatasetManifest, Shard
from training_gym.spec.config import TrainingSpec
from zoo_compute.content.blockstore import BlockStore
from zoo_protocol.content import unixfs
from zoo_protocol.content.cid import InvalidCid, digest_of
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.hashing import sha256

SEVERAL = random.Random(3).randbytes(3 * 262_144 + 9)
ABSENT = cid_of_file(b"nobody stores this")
ABSENT_TREE = unixfs.cid_of_file(b"nobody stores this" * 100_000)
needs_cid_codec = pytest.mark.skipif(
    "ZOO_TEST_JSIPFS" in os.environ, reason="js-ipfs knows block/put's older options only, not cid-codec"
)


@pytest.fixture(scope="module")
def storage(store: StoreProcess) -> Storage:
    return Storage(store.rpc_url)


@pytest.mark.parametrize("data", [b"", b"small", SEVERAL])
@pytest.mark.parametrize("form", [bytes, io.BytesIO, lambda data: [data[:5], memoryview(data)[5:]]])
def test_stored_content_is_pinned_and_readable(storage, data, form):
    blob = storage.put(form(data), max_bytes=len(data))
    assert blob == StoredBlob(unixfs.cid_of_file(data), len(data))
    assert storage.is_pinned(blob.cid)
    assert storage.stat(blob.cid) == len(data)
    assert storage.get(blob.cid, max_bytes=len(data)) == data
    assert b"".join(storage.open_stream(blob.cid, max_bytes=len(data))) == data


@needs_cid_codec
def test_record_of_any_length_is_single_hashed_block(storage):
    record = b"r" * 600_000
    blob = storage.put_block(record)
    assert digest_of(blob.cid) == sha256(record)
    assert storage.is_pinned(blob.cid)
    assert storage.get(blob.cid, max_bytes=len(record)) == record
    with pytest.raises(BlobTooLarge):
        storage.put_block(bytes(1024 * 1024 + 1))


def test_pin_and_unpin_are_repeatable(storage):
    cid = storage.put(b"pinned", max_bytes=10).cid
    for _ in range(2):
        storage.unpin(cid)
        assert not storage.is_pinned(cid)
    for _ in range(2):
        storage.pin(cid)
        assert storage.is_pinned(cid)


def test_large_file_pin_is_not_bound_by_timeout(store, storage):
    """Kubo's ``timeout`` ends the whole command, not only the search."""
    cid = storage.put(b"said to be large", max_bytes=16).cid
    with faulty(store.rpc_url, lambda _path, body: body) as (url, asked):
        Storage(url, lookup_timeout=5.0).pin(cid)
        Storage(url, lookup_timeout=5.0).pin(cid, size=1_000_000_000)
    assert ["timeout=5000ms" in asked[0], "timeout=105000ms" in asked[1]] == [True, True]


@needs_cid_codec
def test_dataset_transfer_time_grows_with_size(store, monkeypatch):
    shards = [(Shard(cid_of_file(b"split"), size, "0x" + "00" * 32),) for size in (MAX_SHARD_TOKENS, 1_000_000)]
    storage = Storage(store.rpc_url)
    dataset = storage.put(DatasetManifest(*shards, dtype="uint32", vocab_size=9).to_bytes(), max_bytes=1 << 20).cid
    sizes: list[int] = []
    monkeypatch.setattr(storage, "pin", lambda _cid, size=0: sizes.append(size))
    own_pins.pin(storage, "job", own_pins.dataset_files(storage, mock.Mock(dataset=dataset)))
    assert sizes == [storage.stat(dataset), 4 << 30, 4_000_000]


@needs_cid_codec
@pytest.mark.parametrize("data", [b"one block", SEVERAL], ids=["block", "tree"])
def test_owned_pins_of_file_are_independent(store, storage, data):
    file = storage.put(data, max_bytes=1 << 20)
    for owner in ("a", "b"):
        storage.pin(storage.put_owned(file, owner))
    storage.unpin(file.cid)
    storage.unpin(file.owned_cid("a"))
    BlockStore(store.directory).collect()
    assert storage.get(file.owned_cid("b"), max_bytes=1 << 20) == b"b" + data
    storage.unpin(file.owned_cid("b"))
    BlockStore(store.directory).collect()
    with pytest.raises(BlobNotFound):
        storage.get(file.cid, max_bytes=1 << 20)


@pytest.mark.parametrize("claimed", [4, 6, 1 << 28])
def test_dataset_with_wrong_sizes_is_refused_before_payment(storage, claimed):
    stored = storage.put(b"short", max_bytes=5).cid
    true, wrong = ((Shard(stored, size, "0x" + "00" * 32),) for size in (5, claimed))
    for splits in ((wrong, true), (true, wrong)):
        dataset = storage.put(DatasetManifest(*splits).to_bytes(), max_bytes=1 << 20).cid
        spec = TrainingSpec.from_dict({"data_config": {"dataset": dataset}})
        with pytest.raises(InvalidDataset, match="the file has 5 bytes"):
            require_dataset(storage, spec)


def test_size_limit_applies_to_put_and_get(storage):
    for data in (b"four!", [b"fo", b"ur!"], io.BytesIO(b"four!")):
        with pytest.raises(BlobTooLarge):
            storage.put(data, max_bytes=4)
    assert not storage.is_pinned(cid_of_file(b"four!"))
    cid = storage.put(SEVERAL, max_bytes=len(SEVERAL)).cid
    with pytest.raises(BlobTooLarge):
        storage.get(cid, max_bytes=len(SEVERAL) - 1)


@needs_cid_codec
def test_pieces_join_without_content_and_pin_afterwards(store):
    content = random.Random(5).randbytes(2 * unixfs.PIECE_BYTES + 300_000)
    asked: list[str] = []

    def note(path: str, body: bytes) -> bytes:
        asked.append(path)
        return body

    with faulty(store.rpc_url, note) as (url, _asked):
        storage = Storage(url)
        pieces = [content[start : start + unixfs.PIECE_BYTES] for start in range(0, len(content), unixfs.PIECE_BYTES)]
        stored = [storage.put(piece, max_bytes=unixfs.PIECE_BYTES, pin=False) for piece in pieces]
        assert not any(storage.is_pinned(piece.cid) for piece in stored)
        asked.clear()
        blob = storage.join([(piece.cid, piece.size) for piece in stored])
        assert sum("block/get" in path for path in asked) == len(pieces)
    assert blob == StoredBlob(unixfs.cid_of_file(content), len(content))
    storage = Storage(store.rpc_url)
    assert not storage.is_pinned(blob.cid)
    storage.pin(blob.cid, size=blob.size)
    assert storage.is_pinned(blob.cid)
    assert storage.get(blob.cid, max_bytes=len(content)) == content
    with pytest.raises(BlobNotFound):
        storage.join([(ABSENT_TREE, unixfs.PIECE_BYTES)])


def test_absent_content_is_reported(storage):
    for ask in (lambda: storage.get(ABSENT, max_bytes=1), lambda: storage.stat(ABSENT), lambda: storage.pin(ABSENT)):
        with pytest.raises(BlobNotFound):
            ask()
    with pytest.raises(InvalidCid):
        storage.get("QmUNLLsPACCz1vLxQVkXqqLX5R1X345qqfHbsf67hvA3Nn", max_bytes=1)


def _damage(path: str, body: bytes) -> bytes:
    return body.replace(b"bafkrei", b"bafkref") if "/add" in path else bytes(len(body))


def test_ipfs_node_answers_are_verified(store, storage):
    cid = storage.put(SEVERAL, max_bytes=len(SEVERAL)).cid
    with faulty(store.rpc_url, _damage) as (url, _asked):
        false_storage = Storage(url)
        with pytest.raises(BlobCorrupt):
            false_storage.get(cid, max_bytes=len(SEVERAL))
        with pytest.raises(BlobCorrupt):
            false_storage.put(b"small", max_bytes=10)


@pytest.mark.parametrize("spoil", [None, lambda body: body, lambda body: bytes(len(body)), lambda body: body[:-1]])
def test_file_is_fetched_by_blocks_when_whole_fails(store, storage, spoil):
    cid = storage.put(SEVERAL, max_bytes=len(SEVERAL)).cid
    paths: list[str] = []

    def give(path: str, body: bytes) -> bytes | None:
        paths.append(path)
        return body if "/cat" not in path else spoil and spoil(body)

    with faulty(store.rpc_url, give) as (url, _asked):
        assert Storage(url).get(cid, max_bytes=len(SEVERAL)) == SEVERAL
    whole = spoil is not None and spoil(b"ab") == b"ab"
    assert [sum(kind in path for path in paths) for kind in ("/cat", "block/get")] == [1, 0 if whole else 5]


@pytest.mark.parametrize(("start", "stop", "blocks"), [(0, 8, 2), (262_140, 262_150, 3), (786_432, len(SEVERAL), 2)])
def test_range_reads_its_verified_blocks_only(store, storage, start, stop, blocks):
    cid = storage.put(SEVERAL, max_bytes=len(SEVERAL)).cid
    wanted = {"max_bytes": len(SEVERAL), "until": time.monotonic() + 30}
    with faulty(store.rpc_url, lambda _path, body: body) as (url, asked):
        assert Storage(url).get_range(cid, start, stop, **wanted) == SEVERAL[start:stop]
    assert ["block/get" in path for path in asked] == [True] * blocks
    with faulty(store.rpc_url, _damage) as (url, _asked), pytest.raises(BlobCorrupt):
        Storage(url).get_range(cid, start, stop, **wanted)
    with pytest.raises(BlobTooLarge):
        storage.get_range(cid, start, stop, **wanted | {"max_bytes": len(SEVERAL) - 1})


def test_range_of_slow_blocks_is_given_up(store, storage):
    cid = storage.put(SEVERAL, max_bytes=len(SEVERAL)).cid

    def slow(_path: str, body: bytes) -> bytes:
        time.sleep(0.4)
        return body

    with faulty(store.rpc_url, slow) as (url, asked), pytest.raises(BlobNotFound, match="in time"):
        Storage(url).get_range(cid, 0, len(SEVERAL), max_bytes=len(SEVERAL), until=time.monotonic() + 0.6)
    assert 1 <= len(asked) <= 2


def test_transient_failures_are_retried_except_for_streams(store):
    failed: set[str] = set()

    def fail_once(path: str, body: bytes) -> bytes | None:
        if path in failed:
            return body
        failed.add(path)
        return None

    with faulty(store.rpc_url, fail_once) as (url, _asked):
        storage = Storage(url)
        blob = storage.put(SEVERAL, max_bytes=len(SEVERAL))
        assert storage.get(blob.cid, max_bytes=len(SEVERAL)) == SEVERAL
        failed.clear()
        with pytest.raises(StorageUnavailable):
            storage.put(io.BytesIO(b"a stream cannot be sent again"), max_bytes=100)


def test_adapter_survives_ipfs_restart(own_store):
    storage = Storage(own_store.rpc_url)
    cid = storage.put(b"kept", max_bytes=10).cid
    assert storage.healthy()
    own_store.stop(signal.SIGKILL)
    assert not storage.healthy()
    with pytest.raises(StorageUnavailable):
        storage.get(cid, max_bytes=10)
    own_store.start()
    assert storage.get(cid, max_bytes=10) == b"kept"


def test_hanging_ipfs_node_counts_as_unavailable():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        storage = Storage(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.1)
        started = time.monotonic()
        with pytest.raises(StorageUnavailable):
            storage.get(ABSENT, max_bytes=1)
        assert time.monotonic() - started < 20


def test_threads_share_one_storage(storage):
    def put_and_get(number: int) -> bool:
        data = random.Random(number).randbytes(300_000)
        return storage.get(storage.put(data, max_bytes=300_000).cid, max_bytes=300_000) == data

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(put_and_get, range(24)))


def _reads_right(storage: Storage, cid: str, data: bytes) -> bool:
    return all(storage.get(cid, max_bytes=len(data)) == data for _ in range(40))


def test_forked_worker_opens_own_connections(storage):
    ours, its = random.Random(4).randbytes(200_000), random.Random(5).randbytes(200_000)
    our_cid, its_cid = (storage.put(data, max_bytes=len(data)).cid for data in (ours, its))

    def child() -> None:
        sys.exit(0 if _reads_right(storage, its_cid, its) else 1)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    assert _reads_right(storage, our_cid, ours)  # at the same time: answers on a shared socket would be mixed up
    process.join()
    assert process.exitcode == 0


@pytest.mark.parametrize("form", ["/ip4/127.0.0.1/tcp/{}", "http://127.0.0.1:{}", "http://localhost:{}/"])
def test_address_may_be_multiaddr_or_url(store, form):
    assert Storage(form.format(store.rpc_port)).healthy()


@pytest.mark.parametrize("address", ["", "127.0.0.1:5001", "ftp://host:1", "/ip4/127.0.0.1", "http://host:1/path"])
def test_invalid_ipfs_address_is_refused_at_once(address):
    with pytest.raises(ValueError, match="IPFS API address"):
        Storage(address)
