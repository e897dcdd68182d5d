import hashlib
import io

import pytest

from zoo_protocol.content import unixfs
from zoo_protocol.content.cid import DAG_PB, Cid, ContentTooLarge, InvalidBlock, of_block
from zoo_protocol.content.unixfs import FileNode, Link


def pattern(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


# Obtained from ipfs-unixfs-importer 12.0.1 (js-ipfs) with cidVersion 1 and rawLeaves, on `pattern(size)`.
GOLDEN = {
    0: "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku",
    1: "bafkreidogqfzz75tpkmjzjke425xqcrmpcib2p5tg44hnbirumdbpl5adu",
    262_144: "bafkreibruh455iawsviqslif5c7uurdcfdemh22mtnytyzvnzn75kpejxy",
    262_145: "bafybeiexg2oqkfnj56l7fcmawswqbijt5shq4b5rg6a546uwpkqqzwjioi",
    174 * 262_144: "bafybeihpe5snhzneq7xs53nivmsopto5lrogo3wjynauqylqeym5a3irbm",
    174 * 262_144 + 1: "bafybeib4y7ghw2rq7bracc4xwtxrbzo7cfvagdpte2tmrkgwl6dyard3cm",
}


@pytest.mark.parametrize(("size", "cid"), GOLDEN.items())
def test_cids_are_those_of_another_implementation(size, cid):
    data = pattern(size)
    assert unixfs.cid_of_file(data) == cid
    assert unixfs.cid_of_file(io.BytesIO(data)) == cid


def _varint(value: int) -> bytes:
    return bytes([value & 127 | 128]) + _varint(value >> 7) if value > 127 else bytes([value])


def _part(key: int, value: bytes) -> bytes:
    return bytes([key]) + _varint(len(value)) + value


def _parent(children: list[tuple[bytes, int, int]]) -> tuple[bytes, int, int]:
    links = b"".join(_part(0x12, _part(0x0A, cid) + b"\x12\x00\x18" + _varint(dag)) for cid, _size, dag in children)
    size = sum(size for _cid, size, _dag in children)
    sizes = b"".join(b"\x20" + _varint(size) for _cid, size, _dag in children)
    block = links + _part(0x0A, b"\x08\x02\x18" + _varint(size) + sizes)
    cid = b"\x01\x70\x12\x20" + hashlib.sha256(block).digest()
    return cid, size, len(block) + sum(dag for _cid, _size, dag in children)


def test_three_level_files_follow_formats():
    """More than 174² equal leaves (7.9 GB) need three levels."""
    chunk, count = 262_144, 174**2 + 1
    leaf = of_block(0x55, bytes(chunk))
    builder = unixfs.FileBuilder(lambda _cid, _block: None)
    for _ in range(count):
        builder.append_leaf(Link(leaf, chunk, chunk))
    level, levels = [(leaf.to_bytes(), chunk, chunk)] * count, 0
    while len(level) > 1:
        level = [_parent(level[at : at + 174]) for at in range(0, len(level), 174)]
        levels += 1
    [(cid, size, dag)] = level
    assert (levels, size) == (3, count * chunk)
    assert builder.finish() == Link(Cid.from_bytes(cid), size, dag)


def test_empty_directory_is_not_a_file():
    """Its CID of version 0 is QmUNLLsPACCz1vLxQVkXqqLX5R1X345qqfHbsf67hvA3Nn."""
    block = b"\x0a\x02\x08\x01"
    assert str(of_block(DAG_PB, block)) == "bafybeiczsscdsbs7ffqz55asqdf3smv6klcw3gofszvwlyarci47bgf354"
    with pytest.raises(InvalidBlock):
        unixfs.decode_node(block)


def _tree(data: bytes, **options: int) -> tuple[Cid, dict[Cid, bytes]]:
    blocks: dict[Cid, bytes] = {}
    return unixfs.build(data, blocks.__setitem__, **options), blocks


def test_range_fetches_only_leaves_it_needs():
    data = pattern(1000)
    root, blocks = _tree(data, chunk_bytes=10, max_links=4)
    fetched: list[Cid] = []

    def get(cid: Cid) -> bytes:
        fetched.append(cid)
        return blocks[cid]

    assert b"".join(unixfs.read(root, get, max_bytes=1000, start=95, stop=111)) == data[95:111]
    assert sum(cid.codec != DAG_PB for cid in fetched) == 3


def test_limit_holds_before_any_leaf_is_fetched():
    root, blocks = _tree(pattern(1000), chunk_bytes=10)
    inner = {cid: block for cid, block in blocks.items() if cid.codec == DAG_PB}
    with pytest.raises(ContentTooLarge):
        list(unixfs.read(root, inner.__getitem__, max_bytes=999))


def _node(*links: Link) -> tuple[Cid, bytes]:
    block = FileNode(links).encode()
    return of_block(DAG_PB, block), block


def test_contradictory_sizes_are_refused():
    leaf_cid, leaf = of_block(0x55, b"four"), b"four"
    root, block = _node(Link(leaf_cid, 5, 4))
    with pytest.raises(InvalidBlock, match="parent states 5"):
        list(unixfs.read(root, {root: block, leaf_cid: leaf}.__getitem__, max_bytes=100))
    inner, inner_block = _node(Link(leaf_cid, 4, 4))
    top, top_block = _node(Link(inner, 3, 50))
    with pytest.raises(InvalidBlock, match="parent states 3"):
        list(unixfs.read(top, {top: top_block, inner: inner_block, leaf_cid: leaf}.__getitem__, max_bytes=100))


def test_links_without_bytes_are_refused():
    leaf = of_block(0x55, b"")
    with pytest.raises(InvalidBlock):
        unixfs.decode_node(_node(Link(leaf, 0, 0), Link(leaf, 0, 0))[1])


def test_too_deep_file_is_refused():
    cid = of_block(0x55, b"x")
    blocks = {cid: b"x"}
    for _ in range(unixfs.MAX_DEPTH + 1):
        cid, block = _node(Link(cid, 1, 1))
        blocks[cid] = block
    with pytest.raises(ContentTooLarge):
        list(unixfs.read(cid, blocks.__getitem__, max_bytes=10))


def test_reader_requests_each_block_once():
    """Ten kilobytes of blocks describe 10,000 leaves of one byte each."""
    cid, size, asked = of_block(0x55, b"x"), 1, 0
    blocks = {cid: b"x"}
    for _ in range(2):
        cid, block = _node(*[Link(cid, size, size)] * 100)
        blocks[cid], size = block, size * 100

    def get(cid: Cid) -> bytes:
        nonlocal asked
        asked += 1
        return blocks[cid]

    with pytest.raises(ContentTooLarge):
        list(unixfs.read(cid, get, max_bytes=size))
    assert asked < 4200


def test_file_of_1024_byte_chunks_is_read():
    data = pattern(5000 * 1024)  # `ipfs add --chunker=size-1024`
    root, blocks = _tree(data, chunk_bytes=1024)
    assert b"".join(unixfs.read(root, blocks.__getitem__, max_bytes=len(data))) == data


@pytest.mark.parametrize(
    ("true", "altered"),
    [
        (b"\x08\x02\x18\x04", b"\x08\x02\x18\x05"),  # total size
        (b"\x08\x02\x18\x04", b"\x08\x01\x18\x04"),  # a directory
        (b"\x12\x00\x18\x04", b"\x12\x00\x98\x00"),  # an integer longer than needed
        (b"\x12\x00\x18\x04", b"\x18\x04\x12\x00"),  # another order
        (b"\x12\x00\x18\x04", b"\x20\x00\x18\x04"),  # an unknown field
    ],
)
def test_node_has_one_encoding(true, altered):
    _cid, block = _node(Link(of_block(0x55, b"four"), 4, 4))
    assert unixfs.decode_node(block)
    assert block.count(true) == 1
    with pytest.raises(InvalidBlock):
        unixfs.decode_node(block.replace(true, altered))


@pytest.mark.parametrize("size", [1, 16, 17, 16 * 174, 16 * 174 + 1, 40_000])
def test_pieces_form_file(size):
    content = bytes(number % 251 for number in range(size))
    blocks = {}
    whole = unixfs.build(content, blocks.__setitem__, chunk_bytes=1)
    joined = unixfs.FileBuilder(blocks.__setitem__, chunk_bytes=1)
    for start in range(0, size, 16):
        piece = content[start : start + 16]
        root = unixfs.build(piece, blocks.__setitem__, chunk_bytes=1)
        for leaf in unixfs.leaf_links(root, len(piece), blocks.__getitem__):
            joined.append_leaf(leaf)
    link = joined.finish()
    assert (link.cid, link.size) == (whole, size)


def test_piece_of_other_size_is_refused():
    blocks = {}
    root = unixfs.build(b"sixteen bytes...", blocks.__setitem__, chunk_bytes=1)
    with pytest.raises(InvalidBlock, match="not a file of 15 bytes"):
        unixfs.leaf_links(root, 15, blocks.__getitem__)
    deep = unixfs.build(bytes(range(200)), blocks.__setitem__, chunk_bytes=1)
    with pytest.raises(InvalidBlock):
        unixfs.leaf_links(deep, 200, blocks.__getitem__)
    builder = unixfs.FileBuilder(blocks.__setitem__, chunk_bytes=4)
    builder.write(b"x")
    with pytest.raises(ValueError, match="whole chunk"):
        builder.append_leaf(unixfs.Link(root, 4, 4))
