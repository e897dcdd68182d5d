"""The choice of nodes: requirements always hold, and it is close to the best."""

from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.profile import examples

from market.domain.auctions.books import StandingBid, partition_book
from market.domain.nodes.assignment import assign_nodes
from market.domain.nodes.placement import (
    SLOW_MS,
    Candidate,
    Constraint,
    Node,
    Requirements,
    choose,
    coarse_mflops,
    gang_cost,
)


def node(name: str, **known: object) -> Node:
    return Node(name, "eu", "class", **known)  # type: ignore[arg-type]


def crowd(random: Random, count: int) -> list[Candidate]:
    return [
        Candidate(
            node(
                f"n{index:02}",
                site=random.choice([None, "a", "b", "c"]),
                asn=random.choice([None, 1, 2]),
                owner=random.choice(["x", "y", "z"]),
                round_trip_ms=random.choice([None, 5, 20, 80, 200, 900]),
            ),
            price=random.random(),
            missing=random.choice([0.0, 0.5, 1.0]),
        )
        for index in range(count)
    ]


@pytest.mark.parametrize(
    ("wanted", "broken"),
    [
        ({"regions": ["us"]}, Constraint.REGION),
        ({"excluded_regions": ["eu"]}, Constraint.REGION),
        ({"environment_classes": ["other"]}, Constraint.ENVIRONMENT_CLASS),
        ({"min_gpu_memory_gb": 41}, Constraint.GPU_MEMORY),
        ({"min_mflops": 4_101}, Constraint.SPEED),
        ({"min_reliability_bps": 9_001}, Constraint.RELIABILITY),
        ({"attested_only": True}, Constraint.ATTESTATION),
    ],
)
def test_each_requirement_removes_only_violating_nodes(wanted: dict[str, object], broken: Constraint) -> None:
    here = node("n", gpu_memory_gb=40, measured_mflops=4_100, reliability_bps=9_000)
    assert Requirements.of(wanted).broken_by(here) == [broken]
    exact = {
        "regions": ["eu"],
        "environment_classes": ["class"],
        "min_gpu_memory_gb": 40,
        "min_mflops": 4_100,
        "min_reliability_bps": 9_000,
    }
    assert Requirements.of(exact).accepts(here)
    assert Requirements.of({}).accepts(here)


@pytest.mark.parametrize(("measured", "coarse"), [(0, 0), (7, 7), (99, 99), (4_199, 4_100), (61_240_000, 61_000_000)])
def test_speeds_of_equal_hardware_are_one_make(measured: int, coarse: int) -> None:
    assert coarse_mflops(measured) == coarse


def test_objective_has_four_terms_with_published_weights() -> None:
    apart = [Candidate(node(n, site=n, asn=i, owner=n, round_trip_ms=0), missing=0.0) for i, n in enumerate("ab")]
    assert gang_cost(apart) == 0
    costly = [Candidate(one.node, price=1.0, missing=0.0) for one in apart]
    bare = [Candidate(one.node, missing=1.0) for one in apart]
    slow = [Candidate(node("a", site="a", asn=7, owner="a", round_trip_ms=SLOW_MS), missing=0.0), apart[1]]
    silent = [Candidate(node(name, round_trip_ms=0), missing=0.0) for name in "ab"]  # declares nothing
    assert [gang_cost(gang) for gang in (costly, bare, slow, silent)] == [6, 4, 6, 4]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("held", [0, 2])
def test_greedy_gang_is_close_to_best(size: int, held: int) -> None:
    gaps = []
    for seed in range(50):
        candidates = crowd(Random(seed), 9 + held)
        own, candidates = candidates[:held], candidates[held:]
        chosen = choose(size, candidates, own)
        assert len({one.node.provider for one in chosen}) == size
        best = min(gang_cost([*own, *gang]) for gang in combinations(candidates, size))
        gaps.append(gang_cost([*own, *chosen]) / best - 1)
    assert min(gaps) >= -1e-9
    assert sum(gaps) / len(gaps) <= (0.03 if size > 1 else 1e-9)


@settings(max_examples=examples(20, long=200), deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(1, 3), min_size=1, max_size=3))
def test_placement_gives_nodes_once_and_fills_jobs(seed: int, sizes: list[int]) -> None:
    random = Random(seed)
    nodes = crowd(random, sum(sizes))
    jobs = {f"job{index}": size for index, size in enumerate(sizes)}
    missing = {job: {one.node.provider: random.choice([0.0, 0.5, 1.0]) for one in nodes} for job in jobs}
    dealt = assign_nodes(jobs, [one.node for one in nodes], missing)
    assert {job: len(gang) for job, gang in dealt.items()} == jobs
    assert sorted(name for gang in dealt.values() for name in gang) == [one.node.provider for one in nodes]


def test_placement_prefers_nodes_holding_data() -> None:
    nodes = [node(name, site=name, asn=index, owner=name, round_trip_ms=0) for index, name in enumerate("abcd")]
    holds = {"one": "cd", "two": "ab"}
    missing = {job: dict.fromkeys(held, 0.0) for job, held in holds.items()}
    assert {
        job: "".join(sorted(gang)) for job, gang in assign_nodes({"one": 2, "two": 2}, nodes, missing).items()
    } == holds


def test_orders_share_book_only_when_all_compatible() -> None:
    nodes = [node("plain"), node("big", gpu_memory_gb=80), node("safe", gpu_memory_gb=80, attested=True)]
    bids = [
        StandingBid("any", 1, 5, 0),
        StandingBid("roomy", 1, 5, 1, Requirements(min_gpu_memory_gb=80)),
        StandingBid("secret", 1, 5, 2, Requirements(attested_only=True)),
        StandingBid("nowhere", 1, 5, 3, Requirements(regions=frozenset({"us"}))),
    ]
    found = partition_book(bids, nodes, 0)
    assert {tuple(offer.provider for offer in part.offers): [bid.id for bid in part.bids] for part in found} == {
        ("plain", "big", "safe"): ["any"],
        ("big", "safe"): ["any", "roomy"],
        ("safe",): ["any", "roomy", "secret"],
    }
    firsts = [partition_book(bids, nodes, number)[0].offers for number in range(3)]
    assert len(set(firsts)) == 3  # each has its turn
    assert partition_book(bids, [], 0) == []
