"""A block store behaves like a dictionary of blocks and a set of pins."""

import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule
from kit.profile import examples

from zoo_compute.content.blockstore import BlockNotFound, BlockStore
from zoo_protocol.content import unixfs
from zoo_protocol.content.cid import Cid

_File = tuple[list[int], int]
"""Which chunks, and how many bytes after them."""


def _content(file: _File) -> bytes:
    return b"".join(bytes([number]) * unixfs.CHUNK_BYTES for number in file[0]) + bytes(file[1])


class Store(RuleBasedStateMachine):
    files = Bundle("files")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.stores = [BlockStore(Path(self.folder.name)) for _ in range(2)]
        self.blocks: dict[Cid, bytes] = {}
        self.pins: set[Cid] = set()

    def teardown(self) -> None:
        self.folder.cleanup()

    @rule(target=files, file=st.tuples(st.lists(st.integers(0, 3), max_size=4), st.integers(0, 3)))
    def make(self, file: _File) -> _File:
        return file

    @rule(which=st.integers(0, 1), file=files)
    def add(self, which: int, file: _File) -> None:
        data = _content(file)
        root = self.stores[which].add([data[:5], memoryview(data)[5:]])
        assert root == unixfs.build(data, lambda cid, block: self.blocks.__setitem__(cid, bytes(block)))
        self.pins.add(root)

    @rule(which=st.integers(0, 1), file=files)
    def put(self, which: int, file: _File) -> None:
        data = _content(file)

        def both(cid: Cid, block: bytes) -> None:
            self.stores[which].put(cid, block)
            self.blocks[cid] = bytes(block)

        unixfs.build(data, both)

    @rule(which=st.integers(0, 1), file=files)
    def pin(self, which: int, file: _File) -> None:
        data = _content(file)
        root = unixfs.build(data, lambda _cid, _block: None)
        blocks: set[Cid] = set()
        unixfs.build(data, lambda cid, _block: blocks.add(cid))
        if blocks <= self.blocks.keys():
            assert self.stores[which].pin(root) == len(data)
            self.pins.add(root)
        else:
            try:
                self.stores[which].pin(root)
                raise AssertionError("pinned without all its blocks")
            except BlockNotFound:
                pass

    @rule(which=st.integers(0, 1), file=files)
    def unpin(self, which: int, file: _File) -> None:
        data = _content(file)
        root = unixfs.build(data, lambda _cid, _block: None)
        assert self.stores[which].unpin(root) == (root in self.pins)
        self.pins.discard(root)

    @rule(which=st.integers(0, 1))
    def collect(self, which: int) -> None:
        self.stores[1 - which].discard_unfinished()
        self.stores[1 - which] = BlockStore(Path(self.folder.name))  # otherwise the packs being written stay
        kept = {cid for root in self.pins for cid in unixfs.cids(root, self.blocks.__getitem__)}
        assert self.stores[which].collect() == len(self.blocks.keys() - kept)
        self.blocks = {cid: block for cid, block in self.blocks.items() if cid in kept}

    @rule(which=st.integers(0, 1), file=files)
    def read(self, which: int, file: _File) -> None:
        data = _content(file)
        root = unixfs.build(data, lambda _cid, _block: None)
        if root in self.pins:
            assert self.stores[which].fetch(root, max_bytes=1 << 24) == data
            part = self.stores[which].read(root, max_bytes=1 << 24, start=7, stop=300_000)
            assert b"".join(part) == data[7:300_000]

    @invariant()
    def the_same(self) -> None:
        for store in self.stores:
            assert set(store.pins()) == self.pins
        for cid, block in self.blocks.items():
            assert self.stores[0].get(cid) == block


Store.TestCase.settings = settings(max_examples=examples(5, long=40), stateful_step_count=20, deadline=None)
TestStore = Store.TestCase
