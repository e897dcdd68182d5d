"""Comparison of methods that send as many bytes."""

from collections.abc import Iterable, Mapping
from typing import Protocol


class Measured(Protocol):
    """Result of a run: its loss, and the bytes that one worker sent and fetched."""

    @property
    def loss(self) -> float: ...
    @property
    def up(self) -> float: ...
    @property
    def down(self) -> float: ...


def equal_bytes_deficit(
    found: Mapping[str, Measured], ours: Iterable[str], peers: Iterable[str]
) -> tuple[float, str] | None:
    """Return the largest relative loss against a peer with no fewer bytes, and that peer.

    Args:
        found: results by method; one without a result does not count.
        ours: our methods, of which the best one counts that sends and fetches no more than the peer.
        peers: methods to compare with.
    """
    points, deficits = [found[name] for name in ours if name in found], []
    for name, peer in ((name, found[name]) for name in peers if name in found):
        cheaper = [point.loss for point in points if point.up <= peer.up and point.down <= peer.down]
        if cheaper:
            deficits.append((min(cheaper) / peer.loss - 1, name))
    return max(deficits, default=None)
