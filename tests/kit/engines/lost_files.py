"""Files that the embedded store loses."""

from pathlib import Path

from zoo_compute.content.blockstore import BlockStore
from zoo_protocol.content.cid import parse
from zoo_protocol.content.unixfs import cids


def lose(ipfs: dict[str, str], *files: str) -> None:
    """Delete files as a disk may, whichever pins they have."""
    store, gone = BlockStore(Path(ipfs["directory"])), {parse(cid) for cid in files}
    for root in store.pins():
        if gone.intersection(cids(root, store.get)):
            store.unpin(root)
    assert store.collect()
