"""Regions by measured latency, and the shape of a round's aggregation tree. Pure.

Distances are a symmetric matrix in milliseconds, zero on the diagonal. The market knows each node's round trip to its
storage, none between nodes. :func:`latency_matrix` derives lower bounds from them.
"""

from collections.abc import Sequence
from itertools import pairwise

RADIUS_MS = 40
"""Largest distance of a node from the nearest centre, unless ``MAX_REGIONS`` is reached."""

MAX_REGIONS = 8

MAX_LEAF = 16
"""Maximum number of units that one leaf of the tree sums."""

UNKNOWN_MS = 1_000
"""Stands for a round trip without a measurement: far from all measured ones, near to the others."""

Matrix = Sequence[Sequence[float]]


def latency_matrix(round_trips_ms: Sequence[int | None]) -> list[list[float]]:
    """Return lower bounds of distances between nodes, from round trips to one place.

    Nodes of one region are near each other. The converse fails, which does not slow an aggregation: nodes of a leaf
    take equally long to reach it.
    """
    known = [UNKNOWN_MS if value is None else min(value, UNKNOWN_MS) for value in round_trips_ms]
    return [[float(abs(one - other)) for other in known] for one in known]


def regions(latency: Matrix, radius_ms: float = RADIUS_MS, most: int = MAX_REGIONS) -> list[list[int]]:
    """Return groups of row numbers around medoids; groups and members in ascending order.

    Farthest-point traversal (Gonzalez, 1985) adds centres until every row is within ``radius_ms`` of one. Then medoids
    replace centres and rows move to the nearest one while the sum of distances falls. The lower row wins a tie, so
    equal matrices give equal regions.

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
    """Return an aggregation tree's leaves: each region's members in parts of at most ``most``."""
    parts = []
    for group in groups:
        count = -(-len(group) // most)
        bounds = [len(group) * part // count for part in range(count + 1)] if count else []
        parts += [list(group[start:end]) for start, end in pairwise(bounds)]
    return parts


def _farthest_points(latency: Matrix, radius_ms: float, most: int) -> list[int]:
    centres = [min(range(len(latency)), key=lambda row: (sum(latency[row]), row))]
    nearest = list(latency[centres[0]])
    while len(centres) < most and max(nearest) > radius_ms:
        centres.append(nearest.index(max(nearest)))
        nearest = [min(old, new) for old, new in zip(nearest, latency[centres[-1]], strict=True)]
    return centres


def _groups(latency: Matrix, centres: Sequence[int]) -> tuple[list[list[int]], float]:
    """Return rows by nearest centre and the sum of distances; a centre may have no group."""
    groups: dict[int, list[int]] = {}
    total = 0.0
    for row in range(len(latency)):
        centre = min(centres, key=lambda centre: (latency[row][centre], centre))
        groups.setdefault(centre, []).append(row)
        total += latency[row][centre]
    return list(groups.values()), total
