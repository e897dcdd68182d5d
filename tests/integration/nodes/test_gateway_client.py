"""The client against the real store, behind a proxy with failing or false gateways."""

import random
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from kit.engines.ipfs_processes import StoreProcess, faulty
from kit.waiting import delay

from zoo_compute.base.errors import ConfigError
from zoo_compute.content.blockstore import BlockNotFound, BlockStore
from zoo_compute.content.gateway import GatewayClient, GatewayUnavailable
from zoo_protocol.content.cid import BlockMismatch, ContentTooLarge, InvalidCid, parse
from zoo_protocol.content.unixfs import cid_of_file

CHUNK = 262_144
SEVERAL = random.Random(2).randbytes(5 * CHUNK + 1)
ABSENT = cid_of_file(b"nobody stores this")


@pytest.fixture(scope="module")
def file(store: StoreProcess) -> str:
    return store.add(SEVERAL)


@pytest.fixture
def client(store: StoreProcess) -> Iterator[GatewayClient]:
    with GatewayClient([store.gateway_url]) as client:
        yield client


@pytest.mark.parametrize(
    "data", [b"", b"small", SEVERAL, bytes(4 * 262_144), bytes(262_144) + SEVERAL + bytes(262_144)]
)
def test_files_of_all_shapes_are_fetched(store, client, data):
    assert client.fetch(store.add(data), max_bytes=len(data)) == data


@pytest.mark.parametrize("gateway", ["ipfs.example", "http://host:99999999", "http://[::1", "ftp://ipfs.example", ""])
def test_invalid_gateway_url_is_refused_at_once(gateway: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(repr(gateway))) as refused:
        GatewayClient(["http://127.0.0.1:8080", gateway])
    assert refused.value.remedy is not None


def test_file_of_many_blocks_takes_one_request(store, file):
    with faulty(store.gateway_url, lambda _path, body: body) as (url, asked), GatewayClient([url]) as client:
        assert client.fetch(file, max_bytes=len(SEVERAL)) == SEVERAL
    assert asked == [f"/ipfs/{file}?format=car"]


def test_oversized_absent_and_invalid_content_raise_typed_errors(store, client, file, tmp_path):
    with pytest.raises(ContentTooLarge):
        client.fetch(file, max_bytes=len(SEVERAL) - 1)
    with pytest.raises(ContentTooLarge):
        client.download(store.add(b"small"), tmp_path / "file", max_bytes=4)
    assert not (tmp_path / "file").exists()
    with pytest.raises(BlockNotFound):
        client.block(ABSENT)
    with pytest.raises(InvalidCid):
        client.fetch("../../etc/passwd", max_bytes=1)


def test_unreachable_gateway_is_retried_then_named():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with GatewayClient([url], attempts=2) as client, pytest.raises(GatewayUnavailable, match="ConnectError"):
        client.block(ABSENT)


def _flip_last(_path: str, body: bytes) -> bytes:
    return body[:-1] + bytes((body[-1] ^ 1,))


def test_false_gateway_is_detected_and_next_one_asked(store, file):
    with faulty(store.gateway_url, _flip_last) as (url, _asked):
        with GatewayClient([url]) as client, pytest.raises(BlockMismatch):
            client.fetch(file, max_bytes=len(SEVERAL))
        with GatewayClient([url, store.gateway_url]) as client:
            assert client.fetch(file, max_bytes=len(SEVERAL)) == SEVERAL


def test_interrupted_archive_is_completed_by_blocks(store, file):
    def cut_archives(path: str, body: bytes) -> bytes | None:
        return None if path.endswith("format=car") else body

    with faulty(store.gateway_url, cut_archives) as (url, asked), GatewayClient([url]) as client:
        assert client.fetch(file, max_bytes=len(SEVERAL)) == SEVERAL
    assert 2 < len(asked) < 7  # the blocks before the cut were not asked for again


def test_interrupted_download_continues(store, file, tmp_path):
    target = tmp_path / "model"
    lacking = [cid_of_file(SEVERAL[at : at + CHUNK]) for at in range(2 * CHUNK, len(SEVERAL), CHUNK)]

    def fail_after_two(path: str, body: bytes) -> bytes | None:
        return None if "format=car" in path or any(cid in path for cid in lacking) else body

    with (
        faulty(store.gateway_url, fail_after_two) as (url, _asked),
        GatewayClient([url], attempts=1) as client,
        pytest.raises(GatewayUnavailable),
    ):
        client.download(file, target, max_bytes=len(SEVERAL))
    assert not target.exists()

    with faulty(store.gateway_url, lambda _path, body: body) as (url, asked), GatewayClient([url]) as client:
        assert client.download(file, target, max_bytes=len(SEVERAL)) == len(SEVERAL)
    assert target.read_bytes() == SEVERAL
    assert sorted(asked) == sorted(f"/ipfs/{cid}?format=raw" for cid in (file, *lacking))
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


class Gathering:
    """Holds answers back until ``LEAST`` blocks are requested at once."""

    LEAST = 3

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._now = self.most = 0

    def __call__(self, path: str, body: bytes) -> bytes:
        if len(body) == CHUNK and "format=raw" in path:
            with self._changed:
                self._now += 1
                self.most = max(self.most, self._now)
                self._changed.notify_all()
                self._changed.wait_for(lambda: self.most >= self.LEAST, timeout=10)
                self._now -= 1
        return body


@pytest.mark.parametrize("begun", ["in its file", "in the store"])
def test_missing_blocks_are_requested_concurrently(store, file, tmp_path, begun):
    target, blocks, gathering = tmp_path / "model", BlockStore(tmp_path / "store"), Gathering()
    if begun == "in its file":
        (tmp_path / "model.part").write_bytes(SEVERAL[:CHUNK])
    else:
        with GatewayClient([store.gateway_url], store=blocks) as client:
            client.block(file)
            client.block(cid_of_file(SEVERAL[:CHUNK]))
    with faulty(store.gateway_url, gathering) as (url, asked), GatewayClient([url], store=blocks) as client:
        assert client.download(file, target, max_bytes=len(SEVERAL)) == len(SEVERAL)
    assert target.read_bytes() == SEVERAL
    assert gathering.most >= gathering.LEAST
    assert not any(cid_of_file(SEVERAL[:CHUNK]) in path for path in asked)
    assert len(set(asked)) == len(asked)


def test_missing_blocks_are_requested_concurrently_after_interrupted_archive(store, file):
    gathering = Gathering()

    def cut_early(path: str, body: bytes) -> bytes | None:
        return None if "format=car" in path else gathering(path, body)

    with faulty(store.gateway_url, cut_early) as (url, _asked), GatewayClient([url]) as client:
        assert client.fetch(file, max_bytes=len(SEVERAL)) == SEVERAL
    assert gathering.most >= gathering.LEAST


def test_false_blocks_of_partial_file_are_detected(store, file, tmp_path):
    (tmp_path / "model.part").write_bytes(SEVERAL[:CHUNK])

    def falsify(_path: str, body: bytes) -> bytes:
        return bytes(len(body)) if len(body) == CHUNK else body

    with faulty(store.gateway_url, falsify) as (url, _asked), GatewayClient([url]) as client:
        with pytest.raises(BlockMismatch):
            client.download(file, tmp_path / "model", max_bytes=len(SEVERAL))
        assert {fault.code for fault in client.faults} == {"lied"}
    assert not (tmp_path / "model").exists()


def test_archive_continues_after_already_stored_block(store, file, tmp_path):
    blocks = BlockStore(tmp_path)
    blocks.add(SEVERAL[CHUNK : 2 * CHUNK])
    with (
        faulty(store.gateway_url, lambda _path, body: body) as (url, asked),
        GatewayClient([url], store=blocks) as client,
    ):
        assert client.fetch(file, max_bytes=len(SEVERAL)) == SEVERAL
    assert len(asked) == 1


def test_two_downloads_to_one_path_take_turns(store, file, tmp_path):
    other, began = store.add(b"another file"), threading.Event()

    def hold_back(path: str, body: bytes) -> bytes:
        if file in path:
            began.set()
            delay(1.0)  # the other one would be through in this time
        return body

    with (
        faulty(store.gateway_url, hold_back) as (url, _asked),
        GatewayClient([url]) as client,
        ThreadPoolExecutor() as pool,
    ):
        first = pool.submit(client.download, file, tmp_path / "model", max_bytes=len(SEVERAL))
        assert began.wait(60)
        assert client.download(other, tmp_path / "model", max_bytes=100) == 12
        assert first.result() == len(SEVERAL)
    assert (tmp_path / "model").read_bytes() == b"another file"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_corrupted_partial_download_is_replaced(file, client, tmp_path):
    (tmp_path / "model.part").write_bytes(bytes(len(SEVERAL) + 100))
    assert client.download(file, tmp_path / "model", max_bytes=len(SEVERAL)) == len(SEVERAL)
    assert (tmp_path / "model").read_bytes() == SEVERAL


def test_pinned_file_is_read_from_store_only(store, file, tmp_path):
    blocks = BlockStore(tmp_path)
    with GatewayClient([store.gateway_url], store=blocks) as client:
        assert client.fetch(file, max_bytes=len(SEVERAL)) == SEVERAL
    assert blocks.pin(parse(file)) == len(SEVERAL)
    with (
        faulty(store.gateway_url, lambda _path, body: body) as (url, asked),
        GatewayClient([url], store=BlockStore(tmp_path)) as client,
    ):
        assert client.fetch(file, max_bytes=len(SEVERAL)) == SEVERAL
    assert not asked
