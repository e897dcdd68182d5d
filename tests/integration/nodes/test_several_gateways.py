"""A file from several stores at once is right, though one answers falsely, dies or is slow."""

import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from kit.engines.ipfs_processes import StoreProcess, faulty
from kit.waiting import delay, wait_until

from zoo_compute.content.blockstore import BlockNotFound, BlockStore
from zoo_compute.content.gateway import GatewayClient, GatewayUnavailable
from zoo_compute.node.disk.workspace import Workspace
from zoo_protocol.content import unixfs
from zoo_protocol.content.cid import BlockMismatch, ContentTooLarge, parse

CHUNK = 262_144
CONTENT = random.Random(7).randbytes(200 * CHUNK + 5)  # two levels of inner nodes


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[StoreProcess]]:
    processes = [StoreProcess(tmp_path_factory.mktemp("ipfs") / "data") for _ in range(3)]
    for process in processes:
        process.start()
    yield processes
    for process in processes:
        process.stop()


@pytest.fixture(scope="module")
def file(stores: list[StoreProcess]) -> str:
    [cid] = {store.add(CONTENT) for store in stores}
    return cid


def true(_path: str, body: bytes) -> bytes:
    return body


def codes(client: GatewayClient, url: str) -> set[str]:
    return {fault.code for fault in client.faults if fault.gateway == url}


def test_gateways_are_asked_concurrently_and_blocks_about_once(stores, file, tmp_path):
    with ExitStack() as stack:
        proxies = [stack.enter_context(faulty(store.gateway_url, true)) for store in stores]
        client = stack.enter_context(GatewayClient([url for url, _asked in proxies]))
        assert client.download(file, tmp_path / "model", max_bytes=len(CONTENT)) == len(CONTENT)
        assert client.faults == []
    assert (tmp_path / "model").read_bytes() == CONTENT
    asked = [path for _url, paths in proxies for path in paths]
    assert all(paths for _url, paths in proxies)
    assert len(set(asked)) == 201 + 3  # leaves, and the root over two nodes
    assert all(path.endswith("format=raw") for path in asked)


def test_false_gateway_is_avoided_after_one_block(stores, file):
    falsified: list[str] = []

    def falsify_once(path: str, body: bytes) -> bytes:
        if len(body) == CHUNK and not falsified:
            falsified.append(path)
            return body[:-1] + bytes((body[-1] ^ 1,))
        return body

    with (
        faulty(stores[0].gateway_url, falsify_once) as (false_gateway, asked),
        GatewayClient([false_gateway, stores[1].gateway_url, stores[2].gateway_url]) as client,
    ):
        assert client.fetch(file, max_bytes=len(CONTENT)) == CONTENT
        assert falsified
        assert codes(client, false_gateway) == {"lied"}
        assert [fault.gateway for fault in client.faults] == [false_gateway]
        before = len(asked)
        assert client.fetch(file, max_bytes=len(CONTENT)) == CONTENT
        assert len(asked) == before  # not asked again while the others will do


def test_gateway_dying_during_transfer_is_replaced(stores, file, tmp_path):
    dying = StoreProcess(tmp_path / "data")
    dying.start()
    dying.add(CONTENT)
    served = threading.Event()

    def note(_path: str, body: bytes) -> bytes:
        served.set()
        delay(0.02)
        return body

    with (
        faulty(dying.gateway_url, true),
        faulty(stores[1].gateway_url, note) as (steady, _asked),
        GatewayClient([dying.gateway_url, steady], timeout=60.0) as client,
    ):
        pieces = client.stream(file, max_bytes=len(CONTENT))
        got = next(pieces)
        assert served.wait(20)
        dying.stop(signal.SIGKILL)
        assert got + b"".join(pieces) == CONTENT
        assert codes(client, dying.gateway_url) == {"unreachable"}
        assert codes(client, steady) == set()


def test_slow_gateway_delays_nothing_and_silent_is_named(stores, file):
    over = threading.Event()
    answered: list[str] = []

    def silent(path: str, body: bytes) -> bytes:
        answered.append(path)
        over.wait(60)
        return body

    with faulty(stores[0].gateway_url, silent) as (slow, _asked):
        try:
            # Long enough for an answer of the other one on a slow machine.
            with GatewayClient([slow, stores[1].gateway_url], timeout=3.0) as client:
                assert client.fetch(file, max_bytes=len(CONTENT)) == CONTENT
                wait_until(lambda: codes(client, slow))  # it was still being waited for, by its own threads
                assert codes(client, slow) == {"stalled"}
        finally:
            over.set()
    assert len(answered) <= 4  # three requests at once, none after; the root's may be among them


def test_work_of_slow_gateway_is_taken_over(stores, file):
    over = threading.Event()
    gave_up: list[bool] = []  # the slow one's requests that ended before the transfer did

    def slow(_path: str, body: bytes) -> bytes:
        gave_up.append(over.wait(120))
        return body

    with faulty(stores[0].gateway_url, slow) as (url, _asked), ExitStack() as stack:
        stack.callback(over.set)
        client = stack.enter_context(GatewayClient([url, stores[1].gateway_url], timeout=120.0))
        assert client.fetch(file, max_bytes=len(CONTENT)) == CONTENT
        assert gave_up == []
        assert client.faults == []


def test_timely_fragments_do_not_excuse_slow_block(stores, file):
    """A gateway that sends single bytes would pass any limit on silence."""
    import socket

    archive = httpx.get(f"{stores[0].gateway_url}/ipfs/{file}?format=car")

    def drip(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=trickle, args=(connection,), daemon=True).start()

    def trickle(connection: socket.socket) -> None:
        with connection:
            asked = connection.recv(65536)
            try:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                for byte in (archive.content if b"format=car" in asked else bytes(600))[:600]:
                    connection.sendall(bytes([byte]))
                    delay(0.1)
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=drip, args=(listener,), daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with GatewayClient([url], attempts=1, timeout=5.0, block_timeout=0.5) as client:
            with pytest.raises(GatewayUnavailable, match="Stalled"):
                client.block(file)
            assert codes(client, url) == {"stalled"}
        with GatewayClient([url], attempts=1, timeout=5.0, block_timeout=0.5) as client:
            with pytest.raises(GatewayUnavailable, match="Stalled"):
                client.fetch(file, max_bytes=len(CONTENT))
            asked_for = [fault.detail for fault in client.faults]
            assert ["a block" in detail for detail in asked_for] == [True, False, False]  # the root, twice
        listener.shutdown(socket.SHUT_RDWR)


def test_file_parts_from_several_gateways_form_whole(tmp_path):
    processes = [StoreProcess(tmp_path / name) for name in ("first", "second")]
    stores = [BlockStore(process.directory) for process in processes]
    count = iter(range(10**6))
    root = unixfs.build(CONTENT, lambda cid, block: stores[next(count) % 2].put(cid, block))
    for process in processes:
        process.start()
    try:
        with GatewayClient([process.gateway_url for process in processes]) as client:
            assert client.fetch(str(root), max_bytes=len(CONTENT)) == CONTENT
    finally:
        for process in processes:
            process.stop()


def test_missing_or_falsified_content_raises_typed_error(stores, file):
    urls = [store.gateway_url for store in stores[:2]]
    with GatewayClient(urls) as client:
        absent = str(unixfs.build(CONTENT[::-1], lambda _cid, _block: None))
        with pytest.raises(BlockNotFound):
            client.fetch(absent, max_bytes=len(CONTENT))
        with pytest.raises(ContentTooLarge):
            client.fetch(file, max_bytes=len(CONTENT) - 1)

    def zero(_path: str, body: bytes) -> bytes:
        return bytes(len(body))

    with faulty(urls[0], zero) as (one, _), faulty(urls[1], zero) as (other, _), GatewayClient([one, other]) as client:
        with pytest.raises(BlockMismatch):
            client.fetch(file, max_bytes=len(CONTENT))
        assert codes(client, one) == codes(client, other) == {"lied"}


DOWNLOAD = """
import sys
from pathlib import Path
from zoo_compute.content.gateway import GatewayClient
from zoo_compute.node.disk.workspace import Workspace
workspace = Workspace(Path(sys.argv[1]))
with GatewayClient(sys.argv[3:], store=workspace.store) as gateway:
    workspace.fetch(gateway, sys.argv[2])
"""


@pytest.mark.long
def test_killed_node_fetches_only_missing_blocks(stores, file, tmp_path):
    enough = threading.Event()
    served: list[str] = []

    def count(path: str, body: bytes) -> bytes:
        served.append(path)
        if len(served) > 100:
            enough.set()
            delay(0.2)
        return body

    with faulty(stores[0].gateway_url, count) as (one, _), faulty(stores[1].gateway_url, count) as (other, _):
        command = [sys.executable, "-c", DOWNLOAD, str(tmp_path), file, one, other]
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        enough.wait(60)
        process.kill()
        process.communicate()
    assert not list(Path(tmp_path / "files").glob("bafy*[!t]"))

    workspace = Workspace(tmp_path)
    here = {str(cid) for cid in _cids(file) if workspace.store.has(cid)}
    assert len(here) >= 50
    with (
        faulty(stores[0].gateway_url, true) as (one, first),
        faulty(stores[1].gateway_url, true) as (other, second),
        GatewayClient([one, other], store=workspace.store) as gateway,
    ):
        assert workspace.fetch(gateway, file).read_bytes() == CONTENT
    asked = {path.removeprefix("/ipfs/").removesuffix("?format=raw") for path in first + second}
    assert asked == {str(cid) for cid in _cids(file)} - here


def _cids(file: str) -> list:
    found: list = []
    unixfs.build(CONTENT, lambda cid, _block: found.append(cid))
    assert parse(file) in found
    return found


def test_download_without_store_resumes_from_part(stores, file, tmp_path):
    path = tmp_path / "model"
    path.with_name("model.part").write_bytes(CONTENT[: 150 * CHUNK + 99])
    with (
        faulty(stores[0].gateway_url, true) as (one, first),
        faulty(stores[1].gateway_url, true) as (other, second),
        GatewayClient([one, other]) as client,
    ):
        client.download(file, path, max_bytes=len(CONTENT))
    assert path.read_bytes() == CONTENT
    assert len(set(first + second)) == 51 + 3
