"""Regions by latency, and the leaves of the tree that follows them."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.profile import examples

from market.domain.nodes.regions import MAX_REGIONS, UNKNOWN_MS, latency_matrix, leaves, regions


def test_colocated_nodes_form_one_region() -> None:
    chance = random.Random(1)
    centres = [(0, 0), (150, 0), (0, 200), (180, 190)]
    points = [(x + chance.uniform(-12, 12), y + chance.uniform(-12, 12)) for x, y in centres for _ in range(6)]
    distances = [[((a - c) ** 2 + (b - d) ** 2) ** 0.5 for c, d in points] for a, b in points]
    assert regions(distances) == [list(range(start, start + 6)) for start in (0, 6, 12, 18)]


def test_medoids_improve_bad_start() -> None:
    """The farthest point is an outlier; node 55 joins the other centre until that moves."""
    places = [0, 30, 40, 50, 55, 95, 100, 105, 110, 115, 120, 125]
    latency = [[float(abs(one - other)) for other in places] for one in places]
    assert regions(latency, radius_ms=60, most=2) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9, 10, 11]]


def test_single_site_is_one_region() -> None:
    assert regions([[0.0] * 5] * 5) == [[0, 1, 2, 3, 4]]
    assert regions([[0.0]]) == [[0]]
    assert regions([]) == []


def test_unmeasured_node_is_separate() -> None:
    assert latency_matrix([5, None, 8])[0] == [0, UNKNOWN_MS - 5, 3]
    assert regions(latency_matrix([5, None, 8, None, 300])) == [[0, 2], [1, 3], [4]]


def test_non_square_matrix_is_refused() -> None:
    with pytest.raises(ValueError, match="square"):
        regions([[0.0, 1.0]])


@settings(max_examples=examples(20, long=200), deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(0, 2_000)), min_size=1, max_size=40), st.integers(1, 20))
def test_every_node_is_in_one_bounded_leaf(trips: list[int | None], most: int) -> None:
    latency = latency_matrix(trips)
    groups = regions(latency)
    assert sorted(row for group in groups for row in group) == list(range(len(trips)))
    assert len(groups) <= MAX_REGIONS
    parts = leaves(groups, most)
    assert [row for part in parts for row in part] == [row for group in groups for row in group]
    assert all(1 <= len(part) <= most for part in parts)
    assert regions(latency) == groups
