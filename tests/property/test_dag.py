"""Any file survives the way through blocks and archives; nothing else passes for one."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo_protocol.content import car, unixfs
from zoo_protocol.content.cid import DAG_PB, BlockMismatch, Cid, ContentError, InvalidBlock, of_block

files = st.binary(max_size=400)
chunks = st.integers(1, 50)
widths = st.integers(2, 5)


def _tree(data: bytes, chunk: int, width: int) -> tuple[Cid, dict[Cid, bytes]]:
    blocks: dict[Cid, bytes] = {}
    return unixfs.build(data, blocks.__setitem__, chunk_bytes=chunk, max_links=width), blocks


def _in_order(root: Cid, blocks: dict[Cid, bytes]) -> list[tuple[Cid, bytes]]:
    return [(cid, blocks[cid]) for cid in unixfs.cids(root, blocks.__getitem__)]


@given(files, chunks, widths, st.data())
def test_any_range_of_any_file_reads_back(data, chunk, width, draw):
    root, blocks = _tree(data, chunk, width)
    assert unixfs.file_size(root, blocks.__getitem__) == len(data)
    start = draw.draw(st.integers(0, len(data) + 2))
    stop = draw.draw(st.none() | st.integers(0, len(data) + 2))
    read = unixfs.read(root, blocks.__getitem__, max_bytes=len(data), start=start, stop=stop)
    assert b"".join(read) == data[start:stop]


@given(files, st.lists(st.integers(1, 100)), chunks, widths)
def test_chunking_of_input_does_not_change_cid(data, lengths, chunk, width):
    builder = unixfs.FileBuilder(lambda _cid, _block: None, chunk_bytes=chunk, max_links=width)
    rest = data
    for length in lengths:
        builder.write(rest[:length])
        rest = rest[length:]
    builder.write(rest)
    root = builder.finish()
    assert root.cid == _tree(data, chunk, width)[0]
    assert root.size == builder.size == len(data)


@given(st.binary(min_size=1, max_size=200), chunks, widths, st.data())
def test_any_flipped_bit_in_any_block_is_noticed(data, chunk, width, draw):
    root, blocks = _tree(data, chunk, width)
    cid = draw.draw(st.sampled_from(sorted(blocks, key=str)))
    position = draw.draw(st.integers(0, len(blocks[cid]) - 1))
    damaged = bytearray(blocks[cid])
    damaged[position] ^= 1 << draw.draw(st.integers(0, 7))
    blocks[cid] = bytes(damaged)
    with pytest.raises(BlockMismatch):
        list(unixfs.read(root, blocks.__getitem__, max_bytes=1000))


@given(st.binary(min_size=20, max_size=200), widths, st.data())
def test_malformed_nodes_are_refused_with_typed_error(data, width, draw):
    root, blocks = _tree(data, 10, width)
    node = bytearray(blocks[root])
    for _ in range(draw.draw(st.integers(1, 3))):
        node[draw.draw(st.integers(0, len(node) - 1))] = draw.draw(st.integers(0, 255))
    damaged = bytes(node[: draw.draw(st.integers(0, len(node)))])
    blocks[of_block(DAG_PB, damaged)] = damaged

    def get(cid: Cid) -> bytes:
        if cid not in blocks:
            raise InvalidBlock("not here")
        return blocks[cid]

    with contextlib.suppress(ContentError):  # any other exception fails the test
        list(unixfs.read(of_block(DAG_PB, damaged), get, max_bytes=1000))


@given(st.binary(max_size=300))
def test_arbitrary_bytes_never_crash_decoder(data):
    for decode in (unixfs.decode_node, lambda data: list(car.read([data], of_block(DAG_PB, b"")))):
        with pytest.raises(ContentError):
            decode(data)


@given(files, chunks, widths, st.integers(1, 100))
def test_archives_carry_every_block_once_parents_first(data, chunk, width, piece):
    root, blocks = _tree(data, chunk, width)
    archive = b"".join(car.write(root, _in_order(root, blocks)))
    pieces = [archive[start : start + piece] for start in range(0, len(archive), piece)]
    received = list(car.read(pieces, root))
    assert received[0][0] == root
    assert len(received) == len(blocks)
    assert dict(received) == blocks


@given(st.binary(min_size=1, max_size=100), chunks, st.data())
def test_any_flipped_bit_in_archive_is_noticed(data, chunk, draw):
    root, blocks = _tree(data, chunk, 3)
    archive = bytearray(b"".join(car.write(root, _in_order(root, blocks))))
    archive[draw.draw(st.integers(0, len(archive) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    with pytest.raises(ContentError):
        list(car.read([bytes(archive)], root))
