"""Archives and negotiation of https://specs.ipfs.tech/http-gateways/trustless-gateway/."""

import random

import httpx
import pytest
from kit.engines.ipfs_processes import StoreProcess

from zoo_protocol.content import car, unixfs, varint
from zoo_protocol.content.cid import DAG_PB, RAW, Cid, of_block, parse

CHUNK = unixfs.CHUNK_BYTES
CONTENT = random.Random(3).randbytes(unixfs.MAX_LINKS * CHUNK) + b"two nodes under the root" + bytes(CHUNK)
SIZE = len(CONTENT)
RAW_TYPE, CAR_TYPE = "application/vnd.ipld.raw", "application/vnd.ipld.car"


@pytest.fixture(scope="module")
def file(store: StoreProcess) -> str:
    return store.add(CONTENT)


def _archive(store: StoreProcess, cid: str, query: str) -> tuple[httpx.Response, dict[Cid, bytes]]:
    answer = httpx.get(f"{store.gateway_url}/ipfs/{cid}?format=car&{query}", timeout=300)
    answer.raise_for_status()
    return answer, dict(car.read([answer.content], parse(cid)))


@pytest.mark.parametrize(
    ("asked", "start", "stop", "nodes", "leaves"),
    [
        ("0:0", 0, 1, 2, 1),
        (f"0:{CHUNK - 1}", 0, CHUNK, 2, 1),
        (f"{CHUNK - 1}:{CHUNK}", CHUNK - 1, CHUNK + 1, 2, 2),
        (f"{unixfs.MAX_LINKS * CHUNK}:*", unixfs.MAX_LINKS * CHUNK, SIZE, 2, 2),
        ("-1:*", SIZE - 1, SIZE, 2, 1),
        (f"{-SIZE - 9}:{CHUNK - 1}", 0, CHUNK, 2, 1),  # begins before the file
        (f"5:{5 - SIZE}", 5, 6, 2, 1),
        (f"{SIZE - 2}:{SIZE + CHUNK}", SIZE - 2, SIZE, 2, 1),
    ],
)
def test_range_archive_contains_exactly_needed_blocks(store, file, asked, start, stop, nodes, leaves):
    _answer, blocks = _archive(store, file, f"entity-bytes={asked}")
    pieces = unixfs.read(parse(file), blocks.__getitem__, max_bytes=SIZE, start=start, stop=stop)
    assert b"".join(pieces) == CONTENT[start:stop]
    kinds = [cid.codec for cid in blocks]
    assert (kinds.count(DAG_PB), kinds.count(RAW)) == (nodes, leaves)


@pytest.mark.parametrize("query", ["dag-scope=block", "entity-bytes=5:4", "entity-bytes=-3:-9"])
def test_empty_archive_contains_only_root(store, file, query):
    _answer, blocks = _archive(store, file, query)
    assert list(blocks) == [parse(file)]


def test_entity_scopes_return_whole_file_with_own_tags(store):
    content = random.Random(4).randbytes(2 * CHUNK + 1)
    cid = store.add(content)
    queries = ["dag-scope=all", "dag-scope=entity", "dag-scope=block", "entity-bytes=0:*", "entity-bytes=0:5"]
    answers = [_archive(store, cid, query) for query in queries]
    for _answer, blocks in (*answers[:2], answers[3]):
        assert b"".join(unixfs.read(parse(cid), blocks.__getitem__, max_bytes=len(content))) == content
    assert len({answer.headers["etag"] for answer, _blocks in answers}) == len(queries)


@pytest.mark.parametrize("content", [b"", b"one block"])
def test_one_block_file_is_archived_for_any_scope(store, content):
    cid = store.add(content)
    for query in ("dag-scope=block", "entity-bytes=0:*", "entity-bytes=-4:*"):
        assert list(_archive(store, cid, query)[1].values()) == [content]


@pytest.mark.parametrize(
    "query", ["dag-scope=some", "entity-bytes=1", "entity-bytes=*:5", "entity-bytes=a:b", f"entity-bytes={SIZE}:*"]
)
def test_invalid_archive_request_is_refused(store, file, query):
    assert httpx.get(f"{store.gateway_url}/ipfs/{file}?format=car&{query}").status_code == 400
    assert httpx.get(f"{store.gateway_url}/ipfs/{file}?format=raw&{query}").status_code == 200  # archives only


def test_head_reports_same_length_as_get(store, file):
    for cid in (file, store.add(b"small")):
        for query in ("format=car", "format=raw", ""):
            url = f"{store.gateway_url}/ipfs/{cid}?{query}"
            claimed, answer = httpx.head(url).headers, httpx.get(url, timeout=300)
            assert claimed.get("content-length") in (None, str(len(answer.content)))
            assert claimed["content-type"] == answer.headers["content-type"]
            assert claimed["etag"] == answer.headers["etag"]


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ([f"{CAR_TYPE}, {RAW_TYPE};q=0.5"], CAR_TYPE),
        ([f"{CAR_TYPE};q=0.2", f"text/html, {RAW_TYPE};q=0.9"], RAW_TYPE),  # two lines are one list
        ([f"{RAW_TYPE};q=0, {CAR_TYPE};q=0.1"], CAR_TYPE),
        ([f"{CAR_TYPE.upper()}; version=1; order=dfs; dups=n"], CAR_TYPE),
        ([f"{CAR_TYPE};q=much, */*"], "application/octet-stream"),
        ([f"{CAR_TYPE};version=2, */*;q=0.1"], "application/octet-stream"),
        (["*/*"], "application/octet-stream"),
    ],
)
def test_preferred_format_is_sent(store, accept, kind):
    cid = store.add(b"of several forms")
    answer = httpx.get(f"{store.gateway_url}/ipfs/{cid}", headers=[("Accept", line) for line in accept])
    assert answer.headers["content-type"].split(";")[0] == kind


def test_probe_returns_valid_archive_with_empty_block(store):
    header = bytes.fromhex("a265726f6f747381d82a45000155000067") + b"version\x01"
    expected = {"raw": b"", "car": varint.encode(len(header)) + header}
    for form, content in expected.items():
        answer = httpx.get(f"{store.gateway_url}/ipfs/bafkqaaa?format={form}")
        assert (answer.status_code, answer.content) == (200, content)
        assert httpx.head(f"{store.gateway_url}/ipfs/bafkqaaa?format={form}").status_code == 200


def test_range_of_other_representation_returns_full_body(store, file):
    url = f"{store.gateway_url}/ipfs/{file}"
    for tag, status in ((f'"{file}"', 206), ('"of something else"', 200)):
        answer = httpx.get(url, headers={"Range": "bytes=0-4", "If-Range": tag}, timeout=300)
        assert answer.status_code == status
        assert answer.content == (CONTENT[:5] if status == 206 else CONTENT)


@pytest.mark.parametrize("known", ["*", '"another", W/{tag}', "{tag}"])
@pytest.mark.parametrize("query", ["", "?format=raw", "?format=car&entity-bytes=0:4"])
def test_content_known_to_client_is_not_sent(store, known, query):
    url = f"{store.gateway_url}/ipfs/{store.add(b'of several forms')}{query}"
    tag = httpx.get(url).headers["etag"]
    answer = httpx.get(url, headers={"If-None-Match": known.replace("{tag}", tag)})
    assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
    assert httpx.get(url, headers={"If-None-Match": '"another"'}).status_code == 200


def _directory(store: StoreProcess) -> str:
    name = b"a.txt"
    cid = parse(store.add(b"in a directory")).to_bytes()
    link = b"\x0a" + bytes([len(cid)]) + cid + b"\x12" + bytes([len(name)]) + name + b"\x18\x0e"
    node = b"\x12" + bytes([len(link)]) + link + b"\x0a\x02\x08\x01"
    query = {"cid-codec": "dag-pb", "mhtype": "sha2-256"}
    answer = httpx.post(f"{store.rpc_url}/api/v0/block/put", params=query, files={"file": node})
    answer.raise_for_status()
    assert answer.json()["Key"] == str(of_block(DAG_PB, node))
    return str(answer.json()["Key"])


def test_directory_returns_its_block_with_explanation(store):
    cid = _directory(store)
    url = f"{store.gateway_url}/ipfs/{cid}"
    block = httpx.get(f"{url}?format=raw")
    assert (block.status_code, of_block(DAG_PB, block.content)) == (200, parse(cid))
    assert list(_archive(store, cid, "dag-scope=block")[1].values()) == [block.content]
    for query in ("", "?format=car", "?format=car&dag-scope=entity", "?format=car&entity-bytes=0:*"):
        answer = httpx.get(f"{url}{query}")
        assert answer.status_code == 406
        assert answer.text == (
            f"{cid} is not a file node with raw leaves (for example a directory); only this block is served: use "
            "format=raw, or format=car with dag-scope=block\n"
        )
    for path in ("/a.txt", "/a.txt?format=car"):
        answer = httpx.get(f"{url}{path}")
        assert (answer.status_code, "without paths below it" in answer.text) == (404, True)


@pytest.mark.parametrize(
    ("query", "accept", "status"),
    [
        ("?format=car&car-version=1", None, 200),
        ("?format=car&car-version=2", None, 406),
        ("?format=car&car-order=foo", None, 406),
        ("?format=car&car-order=unk&car-dups=y", None, 200),
        ("", f"{CAR_TYPE}; version=2", 406),
        ("", f'{CAR_TYPE}; version="1"', 200),
        ("", f"{CAR_TYPE}; order=foo, {CAR_TYPE}; order=dfs; q=0.5", 200),
        ("?format=car", f"{CAR_TYPE}; version=2", 406),
        ("?format=car&car-version=1", f"{CAR_TYPE}; version=2", 200),  # the query takes precedence
        ("?format=raw&car-version=2", f"{CAR_TYPE}; version=2", 200),
    ],
)
def test_archive_of_other_variant_is_refused(store, query, accept, status):
    url = f"{store.gateway_url}/ipfs/{store.add(b'of several forms')}{query}"
    answer = httpx.get(url, headers={} if accept is None else {"Accept": accept})
    assert answer.status_code == status
    kind = {406: "text/plain", 200: RAW_TYPE if "raw" in query else CAR_TYPE}[status]
    assert answer.headers["content-type"].split(";")[0] == kind


def test_range_beyond_end_stops_at_file_end(store):
    content = random.Random(5).randbytes(CHUNK + 9)
    cid = store.add(content)
    url, far = f"{store.gateway_url}/ipfs/{cid}", "9" * 40
    for asked, start in ((f"bytes=5-{far}", 5), (f"bytes=-{far}", 0), (f"Bytes=7-{far}", 7)):
        answer = httpx.get(url, headers={"Range": asked})
        assert (answer.status_code, answer.content) == (206, content[start:])
    assert httpx.get(url, headers={"Range": f"bytes={far}-"}).status_code == 416
    assert len(_archive(store, cid, f"entity-bytes={CHUNK}:{far}")[1]) == 2
