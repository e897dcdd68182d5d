"""Regions by measured latency, and the shape of a round's aggregation tree. Pure.

Distances come as a matrix, in milliseconds: symmetric, zero on the diagonal. The market knows each node's round trip to
its storage and none between nodes, which never talk; :func:`latency_matrix` makes of those what they do tell.
"""

from collections.abc import Sequence
from itertools import pairwise

RADIUS_MS = 40
"""Regions are added, up to ``MAX_REGIONS``, until no node is farther from the centre of the nearest."""


MAX_REGIONS = 8


MAX_LEAF = 16
"""Units that one leaf of the tree sums at most."""


UNKNOWN_MS = 1_000
"""A round trip that was never measured: far from all that were, near to the others that were not."""


Matrix = Sequence[Sequence[float]]


def latency_matrix(round_trips_ms: Sequence[int | None]) -> list[list[float]]:
    """Distances between nodes from their round trips to one place: the least that the triangle inequality allows.

    Two nodes of one region are near by it; that two which are near are of one region does not follow, and costs an
    aggregation nothing: the nodes of a leaf are those that take equally long to reach it.
    """
    known = [UNKNOWN_MS if value is None else min(value, UNKNOWN_MS) for value in round_trips_ms]
    return [[float(abs(one - other)) for other in known] for one in known]


def regions(latency: Matrix, radius_ms: float = RADIUS_MS, most: int = MAX_REGIONS) -> list[list[int]]:
    """Nodes, by their rows in ``latency``, grouped around medoids; each group and the groups in ascending order.

    Farthest-point traversal (Gonzalez, 1985) chooses centres until nobody is farther than ``radius_ms`` from one;
    then each group's centre becomes its medoid and everybody joins the nearest, as long as that shortens the sum of
    the distances. Ties go to the lower row, so equal matrices give equal regions.

    Raises:
        ValueError: if the matrix is not square.
    """
    if any(len(row) != len(latency) for row in latency):
        raise ValueError("a latency matrix is square")
    if not latency:
        return []
    centres = _farthest_points(latency, radius_ms, most)
    groups, total = _groups(latency, centres)
    while True:
        centres = [min(group, key=lambda row: (sum(latency[row][other] for other in group), row)) for group in groups]
        moved, shorter = _groups(latency, centres)
        if shorter >= total:
            return sorted(groups)
        groups, total = moved, shorter


def leaves(groups: Sequence[Sequence[int]], most: int = MAX_LEAF) -> list[list[int]]:
    """The leaves of an aggregation tree: each region's members in equal parts of at most ``most``."""
    parts = []
    for group in groups:
        count = -(-len(group) // most)
        bounds = [len(group) * part // count for part in range(count + 1)] if count else []
        parts += [list(group[start:end]) for start, end in pairwise(bounds)]
    return parts


def _farthest_points(latency: Matrix, radius_ms: float, most: int) -> list[int]:
    """Centres, the first of them the medoid of all."""
    centres = [min(range(len(latency)), key=lambda row: (sum(latency[row]), row))]
    nearest = list(latency[centres[0]])
    while len(centres) < most and max(nearest) > radius_ms:
        centres.append(nearest.index(max(nearest)))
        nearest = [min(old, new) for old, new in zip(nearest, latency[centres[-1]], strict=True)]
    return centres


def _groups(latency: Matrix, centres: Sequence[int]) -> tuple[list[list[int]], float]:
    """Everybody with the nearest centre, and the sum of the distances; a centre may be left without anybody."""
    groups: dict[int, list[int]] = {}
    total = 0.0
    for row in range(len(latency)):
        centre = min(centres, key=lambda centre: (latency[row][centre], centre))
        groups.setdefault(centre, []).append(row)
        total += latency[row][centre]
    return list(groups.values()), total
