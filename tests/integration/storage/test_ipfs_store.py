"""The embedded store as a process: Kubo clients, gateway clients, and kills."""

import contextlib
import io
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from kit.engines.ipfs_processes import StoreProcess
from kit.waiting import wait_until

from zoo_compute.content.blockstore import BlockStore
from zoo_compute.devnet.ipfs_store import __main__ as ipfs_store
from zoo_protocol.content import car, unixfs
from zoo_protocol.content.cid import of_block, parse
from zoo_protocol.content.unixfs import cid_of_file

SEVERAL = random.Random(1).randbytes(3 * 262_144 + 7)
ABSENT = cid_of_file(b"nobody stores this")
BUILT_LIKE_KUBO = {"cid-version": "1", "raw-leaves": "true"}


@pytest.fixture(scope="module")
def file(store: StoreProcess) -> str:
    return store.add(SEVERAL)


def _get(store: StoreProcess, path: str, **headers: str) -> httpx.Response:
    return httpx.get(store.gateway_url + path, headers=headers)


def _post(store: StoreProcess, command: str, **options: object) -> httpx.Response:
    return httpx.post(f"{store.rpc_url}/api/v0/{command}", timeout=120, **options)


def test_gateway_returns_file_blocks_and_archive(store, file):
    answer = _get(store, f"/ipfs/{file}")
    assert answer.content == SEVERAL
    assert answer.headers["etag"] == f'"{file}"'
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-type"] == "application/octet-stream"

    root = _get(store, f"/ipfs/{file}", Accept="application/vnd.ipld.raw").content
    assert _get(store, f"/ipfs/{file}?format=raw").content == root
    assert of_block(parse(file).codec, root) == parse(file)

    answer = _get(store, f"/ipfs/{file}", Accept="application/vnd.ipld.car; version=1")
    blocks = dict(car.read([answer.content], parse(file)))
    assert _get(store, f"/ipfs/{file}?format=car").content == answer.content
    assert b"".join(unixfs.read(parse(file), blocks.__getitem__, max_bytes=len(SEVERAL))) == SEVERAL


def test_head_and_revalidation_send_no_body(store, file):
    answer = httpx.head(f"{store.gateway_url}/ipfs/{file}")
    assert (answer.status_code, answer.headers["content-length"]) == (200, str(len(SEVERAL)))
    assert httpx.head(f"{store.gateway_url}/ipfs/{file}?format=car").content == b""
    assert _get(store, f"/ipfs/{file}", **{"If-None-Match": f'"{file}"'}).status_code == 304


@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=262143-262145", 262_143, 262_146),
        ("bytes=786432-", 786_432, len(SEVERAL)),
        ("bytes=-5", len(SEVERAL) - 5, len(SEVERAL)),
        ("bytes=5-99999999", 5, len(SEVERAL)),
    ],
)
def test_range_returns_requested_bytes(store, file, asked, start, stop):
    answer = _get(store, f"/ipfs/{file}", Range=asked)
    assert answer.status_code == 206
    assert answer.content == SEVERAL[start:stop]
    assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/{len(SEVERAL)}"


@pytest.mark.parametrize("asked", ["bytes=99999999-", "bytes=-0", "bytes=9-3"])
def test_unsatisfiable_range_is_refused(store, file, asked):
    answer = _get(store, f"/ipfs/{file}", Range=asked)
    assert (answer.status_code, answer.headers["content-range"]) == (416, f"bytes */{len(SEVERAL)}")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/ipfs/{ABSENT}", 404),
        (f"/ipfs/{ABSENT}?format=car", 404),
        ("/ipfs/not-a-cid", 400),
        ("/ipfs/bafkqaaa?format=raw", 200),
        ("/healthz", 200),
    ],
)
def test_gateway_answers_at_once_without_content(store, path, status):
    assert _get(store, path).status_code == status


def test_gateway_refuses_other_formats(store, file):
    assert _get(store, f"/ipfs/{file}?format=tar").status_code == 406


@pytest.mark.parametrize(
    ("command", "params", "status", "message"),
    [
        ("cat", {"arg": ABSENT}, 500, "could not find"),
        ("block/get", {"arg": ABSENT}, 500, "could not find"),
        ("pin/add", {"arg": ABSENT}, 500, "could not find"),
        ("pin/rm", {"arg": ABSENT}, 500, "not pinned"),
        ("pin/ls", {"arg": ABSENT}, 500, "is not pinned"),
        ("block/get", {"arg": "Qm"}, 400, "invalid path"),
        ("block/get", {}, 400, '"arg"'),
        ("cat", {"arg": ABSENT, "offset": "-1"}, 400, '"offset"'),
        ("add", {}, 400, "cid-version"),
        ("add", {**BUILT_LIKE_KUBO, "trickle": "true"}, 400, "trickle"),
        ("add", {**BUILT_LIKE_KUBO, "chunker": "size-1024"}, 400, "chunker"),
        ("add", BUILT_LIKE_KUBO, 400, "multipart"),
    ],
)
def test_errors_match_kubo_format(store, command, params, status, message):
    answer = _post(store, command, params=params)
    assert answer.status_code == status
    assert answer.json()["Type"] == "error"
    assert message in answer.json()["Message"]


def test_cat_returns_requested_part(store, file):
    answer = _post(store, "cat", params={"arg": f"/ipfs/{file}", "offset": 262_140, "length": 10})
    assert answer.content == SEVERAL[262_140:262_150]


def test_small_content_is_whole_and_large_is_streamed(store, file):
    large = random.Random(2).randbytes(5 << 20)
    for cid, content in ((file, SEVERAL), (store.add(large), large)):
        archive = _get(store, f"/ipfs/{cid}?format=car")
        whole = _post(store, "cat", params={"arg": cid})
        assert whole.content == content
        blocks = dict(car.read([archive.content], parse(cid)))
        assert b"".join(unixfs.read(parse(cid), blocks.__getitem__, max_bytes=len(content))) == content
        for answer in (archive, whole):
            assert ("content-length" in answer.headers) == (content is SEVERAL)
            assert ("transfer-encoding" in answer.headers) == (content is large)


def test_several_files_in_one_upload_keep_their_names(store):
    files = [("file", ("a%20b.txt", b"first")), ("file", ("c.txt", b"second"))]
    answer = _post(store, "add", params=BUILT_LIKE_KUBO, files=files)
    hashes = [cid_of_file(b"first"), cid_of_file(b"second")]
    lines = [httpx.Response(200, text=line).json() for line in answer.text.splitlines()]
    assert [(line["Name"], line["Hash"]) for line in lines] == [("a b.txt", hashes[0]), ("c.txt", hashes[1])]


def test_rpc_accepts_only_posts_without_web_origin(store):
    assert httpx.get(f"{store.rpc_url}/api/v0/version").status_code == 405
    assert _post(store, "version", headers={"Origin": "http://evil.example"}).status_code == 403


def test_upload_cut_short_is_not_stored(store):
    data = b"never complete"
    body = b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\n' + data
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    answer = _post(store, "add", params=BUILT_LIKE_KUBO, content=body, headers=headers)
    assert answer.status_code == 400
    assert _get(store, f"/ipfs/{cid_of_file(data)}").status_code == 404


def test_file_beyond_limit_is_refused(own_store):
    own_store.stop()
    own_store.start("--max-file-bytes", "1000")
    assert _post(own_store, "add", params=BUILT_LIKE_KUBO, files={"file": bytes(1000)}).status_code == 200
    answer = _post(own_store, "add", params=BUILT_LIKE_KUBO, files={"file": bytes(1001)})
    assert answer.status_code == 400
    assert "1000 bytes" in answer.json()["Message"]


def test_concurrent_clients_read_what_they_store(store):
    def store_and_read(number: int) -> bool:
        data = random.Random(number).randbytes(300_000)
        return _get(store, f"/ipfs/{store.add(data)}").content == data

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(store_and_read, range(24)))


def test_kill_during_writes_keeps_whole_blocks_and_pins(own_store):
    acknowledged: list[tuple[str, int]] = []

    def write(seed: int) -> None:
        for number in range(seed, 10_000, 4):
            try:
                acknowledged.append((own_store.add(random.Random(number).randbytes(600_000)), number))
            except httpx.HTTPError:
                return

    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(4)]
    for writer in writers:
        writer.start()
    wait_until(lambda: len(acknowledged) >= 10)
    own_store.stop(signal.SIGKILL)
    for writer in writers:
        writer.join()

    ports = own_store.rpc_port, own_store.gateway_port
    own_store.start()
    assert (own_store.rpc_port, own_store.gateway_port) == ports
    assert len(list((own_store.directory / "packs").iterdir())) >= len(acknowledged)
    with contextlib.closing(sqlite3.connect(own_store.directory / "index.sqlite")) as index:
        named = {name for (name,) in index.execute("SELECT DISTINCT pack FROM blocks")}
    assert {path.name for path in (own_store.directory / "packs").iterdir()} == named  # half-written packs are gone
    pins = _post(own_store, "pin/ls", params={"type": "recursive"}).json()["Keys"]
    for cid, number in acknowledged:
        assert cid in pins
        assert _get(own_store, f"/ipfs/{cid}").content == random.Random(number).randbytes(600_000)


def test_sigterm_ends_cleanly_with_idle_client(own_store):
    with httpx.Client(base_url=own_store.gateway_url) as idle:
        idle.get("/healthz")
        assert own_store.stop() == 0
    assert not own_store.port_file.exists()


def test_taken_port_is_reported(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [sys.executable, "-m", "zoo_compute.devnet.ipfs_store", "--directory", str(tmp_path)]
        command += ["--port-file", str(tmp_path / "ports"), "--rpc-port", str(taken.getsockname()[1])]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 1
    assert "ddress already in use" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_damaged_block_counts_as_absent_until_restored(tmp_path):
    blocks = BlockStore(tmp_path)
    root = unixfs.build(io.BytesIO(SEVERAL), blocks.put)
    assert blocks.pin(root) == len(SEVERAL)
    [pack] = (tmp_path / "packs").iterdir()
    pack.write_bytes(pack.read_bytes().replace(SEVERAL[-7:], bytes(7)))
    with pytest.raises(LookupError, match=cid_of_file(SEVERAL[-7:])):
        blocks.pin(root)
    unixfs.build(SEVERAL, blocks.put)
    assert blocks.pin(root) == len(SEVERAL)


def test_collection_keeps_pinned_blocks(tmp_path):
    blocks = BlockStore(tmp_path)
    root = unixfs.build(SEVERAL, blocks.put)
    other = unixfs.build(b"other", blocks.put)
    blocks.pin(root)
    assert blocks.collect() == 1
    assert not blocks.has(other)
    assert blocks.unpin(root)
    assert not blocks.unpin(root)
    assert blocks.collect() == 5


def test_small_answers_do_not_wait_for_acknowledgement():
    """A body in a second packet after its headers took 40 ms more."""
    listener = ipfs_store._listen(0)
    try:
        with socket.create_connection(listener.getsockname()):
            listener.setblocking(True)
            accepted, _ = listener.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    finally:
        listener.close()
