"""The decision over measurements, against its rules written out, with many slots."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from kit.measures import lines_run

from training_gym.aggregate.fixed_point import Fixed
from training_gym.aggregate.robust import (
    ASSUMED_BAD,
    COINCIDENT,
    OPPOSITE,
    OUTLIER,
    WEIGHT_ONE,
    Measurement,
    decide,
    median,
)


def measured(sketches: Fixed) -> dict[int, Measurement]:
    return {slot: Measurement(10**20, 10**20, 0, sketch, WEIGHT_ONE, 4096) for slot, sketch in enumerate(sketches)}


def codes(sketches: Fixed) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {"near_copy": [], "krum_outlier": []}
    for slot, verdict in decide(measured(sketches)).verdicts.items():
        if not verdict.included:
            found[verdict.code].append(slot)
    return found


def as_described(rows: list[list[int]]) -> dict[str, list[int]]:
    others = (row[:own] + row[own + 1 :] for own, row in enumerate(rows))
    near = [[one for one in row if one <= OPPOSITE] for row in others]
    usual = median([median(row) for row in near if row])
    least = COINCIDENT if any(one > OPPOSITE for row in rows for one in row) else 0
    kept: list[int] = []
    for slot, row in enumerate(rows):
        if all(2 * row[lower] >= usual and row[lower] >= least for lower in kept):
            kept.append(slot)
    left, out, count = list(kept), [], len(kept)
    for bad in range(min(int(count * ASSUMED_BAD), (count - 3) // 2), 0, -1):
        widths = {slot: sorted(rows[slot][other] for other in left)[len(left) - bad - 2] for slot in left}
        widest = max(left, key=lambda slot: widths[slot])
        if widths[widest] <= OUTLIER * median(list(widths.values())):
            break
        left.remove(widest)
        out.append(widest)
    return {"near_copy": [slot for slot in range(len(rows)) if slot not in kept], "krum_outlier": sorted(out)}


def drawn(seed: int) -> Fixed:
    dice = np.random.default_rng(seed)
    count = int(dice.integers(3, 40))
    reach = np.exp(dice.normal(0, 0.3, count))
    apart = np.triu(reach[:, None] * reach * dice.uniform(0.4, 1.6, (count, count)), 1)
    whole: Fixed = np.rint((apart + apart.T) * (1 << 40 if seed % 2 else 4)).astype(int)
    return whole


def test_exclusions_follow_description_for_any_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    total = Counter[str]()
    for seed in range(60):
        apart = drawn(seed)

        def among(sketches: Fixed, apart: Fixed = apart) -> Fixed:
            slots = sketches[:, 0]
            chosen: Fixed = apart[np.ix_(slots, slots)]
            return chosen

        monkeypatch.setattr("training_gym.aggregate.robust.squared_distances", among)
        found = codes(np.repeat(np.arange(len(apart))[:, None], 1024, axis=1))
        assert found == as_described(apart.tolist()), seed
        total.update({code: len(slots) for code, slots in found.items()})
    assert min(total["near_copy"], total["krum_outlier"]) > 50


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_per_replica_cost_does_not_grow_with_replicas(share: float) -> None:
    """Counts lines of Python per replica with the maximum of excluded payloads."""

    def cost(count: int) -> float:
        dice = np.random.default_rng(0)
        spread = np.where(np.arange(count) < share * count, 6, 1)[:, None]
        sketches = (dice.standard_normal(1024) + dice.standard_normal((count, 1024)) * spread) * 1e6
        found = measured(sketches.astype(int))

        taken, decision = lines_run(lambda: decide(found))
        assert sum(not verdict.included for verdict in decision.verdicts.values()) == share * count
        return taken / count

    assert cost(160) < 1.5 * cost(40)


def directions(honest: int, cosine: float, flipped: int, seed: int = 0) -> Fixed:
    """Sketches of honest payloads with this mean cosine, and of flipped ones."""
    dice = np.random.default_rng(seed)
    common = dice.standard_normal(1024) * np.sqrt(cosine / (1 - cosine))
    rows = common + dice.standard_normal((honest + flipped, 1024))
    rows[honest:] = dice.standard_normal((flipped, 1024)) - common * 2
    return np.rint(rows * 1e6).astype(np.int64)


def of(sketches: Fixed, products: list[int], weights: dict[int, int] | None = None) -> dict[int, Measurement]:
    return {
        slot: replace(one, product=products[slot], weight=(weights or {}).get(slot, WEIGHT_ONE))
        for slot, one in measured(sketches).items()
    }


@pytest.mark.parametrize(("honest", "flipped"), [(2, 1), (2, 2), (3, 1), (3, 2), (3, 3)])
def test_flipped_payloads_make_no_copies(honest: int, flipped: int) -> None:
    """Honest payloads lie near each other at first."""
    for seed in range(20):
        sketches = directions(honest + flipped, 0.93, 0, seed)
        sketches[honest:] *= -1
        found = decide(measured(sketches)).verdicts
        assert "near_copy" not in {verdict.code for verdict in found.values()}


@pytest.mark.parametrize("honest", [1, 2])
def test_opposed_copies_count_once(honest: int) -> None:
    """They are the majority, so no rule can exclude them all."""
    sketches = directions(2 * honest + 1, 0.4, 0)
    sketches[honest:] = -sketches[:honest].sum(axis=0)
    found = [verdict.code for verdict in decide(measured(sketches)).verdicts.values()]
    assert found.count("near_copy") == honest


@pytest.mark.parametrize("cosine", [0.4, 0.93])
def test_copies_are_found_among_half(cosine: float) -> None:
    for count in (3, 4):
        sketches = directions(count, cosine, 0)
        sketches[-1] = sketches[-2]
        assert codes(sketches)["near_copy"] == [count - 1]


def on_links(fast: int, slow: int, seed: int) -> dict[int, Measurement]:
    """Honest payloads of two levels, with the cosines of a first round: 0.93, 0.5 and 0.17."""
    dice, measurements = np.random.default_rng(seed), {}
    common = dice.standard_normal((2, 1024))
    shared = {4096: 0.96 * common[0], 96: 0.18 * common[0] + 0.68 * common[1]}
    for slot, top_k in enumerate([4096] * fast + [96] * slow):
        own = dice.standard_normal(1024) * (0.27 if top_k == 4096 else 0.71)
        sketch = np.rint((shared[top_k] + own) * 1e6).astype(np.int64)
        measurements[slot] = Measurement(10**20, 10**20, 1, sketch, WEIGHT_ONE, top_k)
    return measurements


@pytest.mark.parametrize(("fast", "slow"), [(2, 1), (3, 1), (2, 2), (4, 4), (20, 20)])
def test_honest_payloads_of_two_levels_are_included(fast: int, slow: int) -> None:
    for seed in range(20):
        found = decide(on_links(fast, slow, seed)).verdicts
        assert {verdict.code for verdict in found.values()} == {"included"}


@pytest.mark.parametrize(("fast", "slow", "first"), [(8, 8, 0), (8, 8, 8), (4, 2, 4), (2, 6, 0), (2, 1, 0)])
def test_copies_are_found_in_each_level(fast: int, slow: int, first: int) -> None:
    found = on_links(fast, slow, 0)
    found[first + 1] = found[first]
    copies = [slot for slot, verdict in decide(found).verdicts.items() if verdict.code == "near_copy"]
    assert copies == [first + 1]


@pytest.mark.parametrize(("norm", "weight", "code"), [(10**24, WEIGHT_ONE, "norm_outlier"), (10**20, 2000, "included")])
def test_level_without_fresh_payloads_has_no_copies(norm: int, weight: int, code: str) -> None:
    found = on_links(3, 1, 0)
    found[3] = replace(found[3], squared_norm=norm, weight=weight)
    assert [one.code for one in decide(found).verdicts.values()] == ["included"] * 3 + [code]


def test_outliers_at_level_of_their_own_are_excluded() -> None:
    found = on_links(6, 2, 0)
    noise = np.random.default_rng(1).standard_normal((2, 1024)) * 1e6
    for slot in (6, 7):
        found[slot] = replace(found[slot], sketch=np.rint(noise[slot - 6]).astype(np.int64))
    codes = [verdict.code for verdict in decide(found).verdicts.values()]
    assert codes == ["included"] * 6 + ["krum_outlier"] * 2


@pytest.mark.parametrize(("honest", "flipped"), [(6, 2), (5, 3), (3, 1)])
def test_flipped_payloads_are_opposed_at_low_cosines(honest: int, flipped: int) -> None:
    for seed in range(20):
        sketches = directions(honest, 0.05, flipped, seed)
        found = decide(of(sketches, [1] * honest + [-1] * flipped)).verdicts
        assert [slot for slot in found if found[slot].code == "opposed"] == list(range(honest, honest + flipped))


def test_quarter_cannot_frame_others_nor_hide() -> None:
    for seed in range(20):
        dice, sketches = np.random.default_rng(seed), directions(8, 0.05, 0, seed).astype(float)
        framed = -sketches[:2].sum(axis=0)
        sketches[6:] = [framed + dice.standard_normal(1024) * 1.4e6 for _ in range(2)]
        found = decide(of(np.rint(sketches).astype(np.int64), [1] * 8)).verdicts
        assert all(found[slot].included for slot in range(6))
        ours = dice.standard_normal(1024) * 0.8e6  # a mutual cosine of 0.4
        flipped = [ours - sketches[:6].mean(axis=0) * 2 + dice.standard_normal(1024) * 0.8e6 for _ in range(2)]
        sketches[6:] = flipped
        found = decide(of(np.rint(sketches).astype(np.int64), [1] * 6 + [-1] * 2)).verdicts
        assert [slot for slot in found if found[slot].code == "opposed"] == [6, 7]


def test_payload_against_one_of_both_stays_unless_clear() -> None:
    sketches = directions(7, 0.1, 1)
    sketches[7] = np.random.default_rng(9).standard_normal(1024) * 1e6  # of no direction
    included = decide(of(sketches, [-1] * 8)).verdicts[7].included
    assert included == (np.sort(sketches[:7] @ sketches[7])[2:5].sum() > 0)
    assert decide(of(sketches, [1] * 8)).verdicts[7].included
    clear = directions(7, 0.5, 1)
    assert decide(of(clear, [1] * 8)).verdicts[7].code == "opposed"


def test_majority_is_never_excluded() -> None:
    rows = np.eye(6, 1024, dtype=np.int64)[[0, 1, 2, 0, 1, 2]] * 10**6
    rows[3:] *= -1  # three pairs of opposites
    found = decide(of(rows, [-1] * 6)).verdicts
    assert sum(verdict.code == "opposed" for verdict in found.values()) <= 2


def test_late_payloads_are_judged_against_last_aggregate_only() -> None:
    sketches = directions(6, 0.1, 2)
    late = {6: WEIGHT_ONE // 2, 7: WEIGHT_ONE // 2}
    found = decide(of(sketches, [1] * 6 + [1, -1], late)).verdicts
    assert [found[slot].code for slot in (6, 7)] == ["included", "opposed"]
    alone = decide(of(sketches[:6], [1] * 6))
    assert {slot: found[slot] for slot in range(6)} == alone.verdicts


def test_late_payload_makes_no_copies_of_fresh_ones() -> None:
    """In the first rounds two fresh ones are near each other, and one of another start far."""
    sketches, late = directions(3, 0.95, 0), {2: WEIGHT_ONE // 2}
    sketches[2] = directions(1, 0.1, 0, seed=1)[0]
    assert {one.code for one in decide(of(sketches, [1] * 3, late)).verdicts.values()} == {"included"}
    repeated = np.concatenate([directions(4, 0.1, 0), directions(4, 0.1, 0)[:1]])
    found = decide(of(repeated, [1] * 5, {4: WEIGHT_ONE // 2})).verdicts
    assert [found[slot].code for slot in range(5)] == ["included"] * 4 + ["near_copy"]


@pytest.mark.parametrize(("late", "expected"), [(2, 2000), (5, 1638)])
def test_late_payloads_weigh_at_most_half_of_fresh(late: int, expected: int) -> None:
    sketches = directions(4 + late, 0.5, 0)
    weights = dict.fromkeys(range(4, 4 + late), 2000)
    found = decide(of(sketches, [1] * (4 + late), weights)).weights
    assert [found[slot] for slot in range(4)] == [WEIGHT_ONE] * 4
    assert [found[slot] for slot in range(4, 4 + late)] == [expected] * late


@pytest.mark.parametrize(("count", "place"), [(1, 0), (2, 0), (3, 1), (4, 2), (8, 5)])
def test_clip_radius_leaves_out_assumed_bad_quarter(count: int, place: int) -> None:
    lengths = [10**6 + 10**5 * slot for slot in range(count)]
    found = {
        slot: replace(one, squared_distance=lengths[slot] ** 2, product=1)
        for slot, one in measured(directions(count, 0.5, 0)).items()
    }
    factors = decide(found).factors
    assert [factors[slot] for slot in range(count)] == [
        min(1 << 24, lengths[place] * (1 << 24) // length) for length in lengths
    ]
