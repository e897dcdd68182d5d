"""Scarcity of nodes: flexible jobs leave scarce nodes; a pool equals a full scan."""

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from random import Random
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.profile import examples

from market.domain.nodes.placement import ANYTHING, Candidate, Node, Requirements, choose, gang_cost
from market.domain.nodes.pool import Pool
from market.domain.nodes.scarcity import MAX_CHECKS, RECENT, Ask, scarcity

ROOMY = Requirements(min_gpu_memory_gb=80)
PLAIN = [Node(f"plain{index}", "eu", "class", gpu_memory_gb=24, round_trip_ms=10) for index in range(8)]
LARGE = [Node(f"large{index}", "eu", "class", gpu_memory_gb=80, round_trip_ms=5) for index in range(2)]


def test_demand_is_spread_over_eligible_nodes() -> None:
    asks = [Ask(ANYTHING, 1)] * 10 + [Ask(ROOMY, 1)]
    found = scarcity(asks, PLAIN + LARGE)  # 10 / 10 on each node, and 1 / 2 more on each large one
    assert found == {PLAIN[0].kind: pytest.approx(1 / 1.5), LARGE[0].kind: 1.0}
    assert scarcity([Ask(ROOMY, 1)], PLAIN + LARGE) == {PLAIN[0].kind: 0.0, LARGE[0].kind: 1.0}
    assert scarcity([], PLAIN) == {PLAIN[0].kind: 0.0}
    assert scarcity(asks, []) == {}


def test_gang_asks_only_for_sufficiently_colocated_nodes() -> None:
    other = [Node(f"other{index}", "eu", "other", gpu_memory_gb=24) for index in range(2)]
    found = scarcity([Ask(ANYTHING, 3), Ask(ANYTHING, 11)], PLAIN + LARGE + other)
    assert found == {PLAIN[0].kind: 1.0, LARGE[0].kind: 1.0, other[0].kind: 0.0}


@given(st.randoms(use_true_random=False))
def test_scarcity_does_not_depend_on_any_sequence(random: Random) -> None:
    asks = [Ask(random.choice([ANYTHING, ROOMY]), random.randint(1, 3)) for _ in range(20)]
    supply = PLAIN + LARGE
    before = scarcity(asks, supply)
    assert all(0 <= share <= 1 for share in before.values())
    random.shuffle(asks)
    assert scarcity(asks, random.sample(supply, len(supply))) == before


def scarcity_node_by_node(asks: list[Ask], supply: list[Node]) -> dict[Hashable, float]:
    wanted = dict.fromkeys((node.kind for node in supply), 0)
    for ask in dict.fromkeys(asks):
        able = [node for node in supply if ask.requirements.accepts(node)]
        books = Counter(node.book for node in able)
        able = [node for node in able if books[node.book] >= ask.nodes]
        for kind in {node.kind for node in able}:
            wanted[kind] += asks.count(ask) * ask.nodes * 10**9 // len(able)
    most = max(wanted.values(), default=0)
    return {kind: demand / most if most else 0.0 for kind, demand in wanted.items()}


@given(st.randoms(use_true_random=False))
def test_grouped_makes_and_levels_match_per_node_check(random: Random) -> None:
    supply = [
        Node(
            str(number),
            random.choice(["eu", "us"]),
            random.choice("ab"),
            gpu_memory_gb=random.choice([24, 80]),
            reliability_bps=random.choice([0, 4_000, 9_000, random.randint(0, 10_000)]),
            attested=random.random() < 0.5,
        )
        for number in range(30)
    ]
    asks = [
        Ask(
            Requirements(
                regions=frozenset(random.choice([(), ("eu",), ("us",)])),
                min_gpu_memory_gb=random.choice([0, 80]),
                min_reliability_bps=random.choice([0, 4_000, 9_500, random.randint(0, 10_000)]),
                attested_only=random.random() < 0.3,
            ),
            random.randint(1, 6),
        )
        for _ in range(20)
    ]
    assert scarcity(asks, supply) == scarcity_node_by_node(asks, supply)


@dataclass(frozen=True, slots=True)
class Counting(Requirements):
    looks: ClassVar[int] = 0

    def accepts(self, node: Node) -> bool:
        Counting.looks += 1
        return Requirements.accepts(self, node)


@pytest.mark.parametrize(
    ("made", "most"),
    [
        (lambda: [Node(str(n), "eu", "class", reliability_bps=n) for n in range(10_000)], RECENT),
        (lambda: [Node(str(n), f"zone{n}", "class") for n in range(10_000)], MAX_CHECKS),
        pytest.param(
            lambda: [Node(str(n), f"zone{n % 100}", str(n), gpu_memory_gb=n) for n in range(200_000)],
            MAX_CHECKS,
            marks=pytest.mark.long,
        ),
    ],
    ids=["reliabilities", "zones", "more makes than looks"],
)
def test_scarcity_checks_are_bounded_for_any_input(made: Callable[[], list[Node]], most: int) -> None:
    supply = made()
    asks = [Ask(Counting(min_reliability_bps=number * 19), 1) for number in range(RECENT)]
    Counting.looks = 0
    found = scarcity(asks, supply)
    assert Counting.looks <= most
    assert len(found) == len({node.kind for node in supply})


def test_bounded_asks_prefer_widest_ones_in_any_order() -> None:
    supply = [Node(str(number), f"zone{number}", "class") for number in range(MAX_CHECKS // 2)]  # two can be
    asks = [Ask(Requirements(regions=frozenset({f"zone{number}"})), 1) for number in range(5) for _ in range(number)]
    found = scarcity(asks, supply)
    assert {supply[n].region: found[supply[n].kind] for n in range(5) if found[supply[n].kind]} == {
        "zone4": 1.0,
        "zone3": 0.75,
    }
    assert scarcity(asks[::-1], supply[::-1]) == found


def test_scarcity_weighs_four_factors_without_refusal() -> None:
    scarce = [Candidate(node, scarcity=1.0) for node in LARGE]
    assert gang_cost(scarce) - gang_cost([Candidate(node) for node in LARGE]) == 8
    assert [one.node for one in choose(2, scarce)] == LARGE  # they are all that there is


def waits_of_the_roomy(scarce: dict[Hashable, float]) -> int:
    random, pool = Random(1), Pool(Candidate(node) for node in PLAIN + LARGE)
    holding: list[tuple[int, Candidate]] = []
    queue: list[Requirements] = []
    waits = 0
    for step in range(2_000):
        for end, held in holding:
            if end == step:
                pool.add(held)
        holding = [(end, held) for end, held in holding if end > step]
        queue.append(ROOMY if random.random() < 1 / 8 else ANYTHING)
        for wanted in list(queue):
            for chosen in pool.choose(1, wanted, scarcity=scarce):
                holding.append((step + 6, pool.remove(chosen.node.provider)))
                queue.remove(wanted)
        waits += queue.count(ROOMY)
        assert len(queue) < 20  # the supply is stable, and no job waits for ever
    return waits


def test_flexible_jobs_leave_scarce_nodes_to_others() -> None:
    blind = waits_of_the_roomy({})  # the large nodes are a little nearer
    seeing = waits_of_the_roomy(scarcity([Ask(ANYTHING, 1)] * 7 + [Ask(ROOMY, 1)], PLAIN + LARGE))
    assert seeing < blind / 4


def crowd(random: Random, count: int) -> list[Candidate]:
    return [
        Candidate(
            Node(
                f"n{index:03}",
                "eu",
                "class",
                gpu_memory_gb=random.choice([24, 80]),
                attested=random.random() < 0.3,
                site=random.choice([None, "a", "b", "c"]),
                round_trip_ms=random.choice([None, 5, 20, 80, 200]),
            ),
            price=random.randint(0, 8) / 8,
        )
        for index in range(count)
    ]


@settings(max_examples=examples(20, long=250), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5))
def test_pool_choice_matches_per_node_check(seed: int, size: int) -> None:
    random = Random(seed)
    crowded = crowd(random, 150)
    pool, free = Pool(crowded), {one.node.provider: one for one in crowded}
    for _ in range(5):
        for name in random.sample(sorted(free), 20):
            assert pool.remove(name) is free.pop(name)
        for back in random.sample([one for one in crowded if one.node.provider not in free], 10):
            pool.add(back)
            free[back.node.provider] = back
        wanted = random.choice([ANYTHING, ROOMY, Requirements(attested_only=True)])
        scarce = scarcity([Ask(ANYTHING, 2), Ask(ROOMY, 1)], [one.node for one in crowded])
        missing = {one.node.provider: random.choice([0.0, 0.5]) for one in random.sample(crowded, 15)}
        seen = [
            Candidate(one.node, one.price, missing.get(name, 1.0), scarce[one.node.kind])
            for name, one in free.items()
            if wanted.accepts(one.node)
        ]
        chosen = pool.choose(size, wanted, scarcity=scarce, missing=missing)
        offered = {(one.node.provider, one.price, one.missing, one.scarcity) for one in seen}
        assert {(one.node.provider, one.price, one.missing, one.scarcity) for one in chosen} <= offered
        assert len({one.node.provider for one in chosen}) == min(size, len(seen))
        full = gang_cost(choose(size, seen))
        assert gang_cost(chosen) == pytest.approx(full, rel=0.1 if size > 1 else 1e-9)
    with pytest.raises(KeyError):
        pool.remove("nobody")
    assert len(pool) == len(free)
