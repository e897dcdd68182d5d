"""What a power cut may take: nothing that was answered as pinned."""

import os
from pathlib import Path

import pytest

from zoo_compute.blockstore import BlockStore
from zoo_protocol import unixfs

SEVERAL = bytes(range(256)) * 4096  # four blocks of a quarter megabyte, and the node above them


class Disk:
    """Watches what is forced to disk: by inode, in order, with renames and the pin's appearance between."""

    def __init__(self, directory: Path, patched: pytest.MonkeyPatch) -> None:
        self.forced: list[int] = []
        self.renamed_before: list[int] = []
        self.pinned_before: list[int] = []
        sync, data_sync, replace = os.fsync, os.fdatasync, os.replace

        def forcing(call: object, handle: int) -> None:
            if any((directory / "pins").iterdir()):
                self.pinned_before.append(os.fstat(handle).st_ino)
            self.forced.append(os.fstat(handle).st_ino)
            call(handle)  # type: ignore[operator]

        def renaming(source: Path, target: Path) -> None:
            if os.stat(source).st_ino not in self.forced:
                self.renamed_before.append(os.stat(source).st_ino)
            replace(source, target)

        patched.setattr(os, "fsync", lambda handle: forcing(sync, handle))
        patched.setattr(os, "fdatasync", lambda handle: forcing(data_sync, handle))
        patched.setattr(os, "replace", renaming)


def test_every_block_and_folder_is_on_disk_before_the_file_is_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, disk = BlockStore(tmp_path), Disk(tmp_path, monkeypatch)
    store.add(SEVERAL)
    paths = list(tmp_path.glob("blocks/*/*"))
    assert len(paths) == 2  # equal chunks are one block; and the node
    needed = {path.stat().st_ino for path in [*paths, *{path.parent for path in paths}, tmp_path / "blocks"]}
    assert needed <= set(disk.forced)
    assert not disk.renamed_before
    assert disk.pinned_before == [(tmp_path / "pins").stat().st_ino]


def test_blocks_that_came_one_by_one_are_forced_when_the_file_is_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, disk = BlockStore(tmp_path), Disk(tmp_path, monkeypatch)
    root = unixfs.build(SEVERAL, store.put)
    assert not disk.forced
    store.pin(root)
    assert {path.stat().st_ino for path in tmp_path.glob("blocks/*/*")} <= set(disk.forced)


def test_what_cannot_be_written_leaves_no_half_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = BlockStore(tmp_path)

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(OSError, match="No space"):
        store.add(SEVERAL)
    assert not list(tmp_path.glob("blocks/*/*"))
    assert not list((tmp_path / "partial").iterdir())
    assert not list(store.pins())
