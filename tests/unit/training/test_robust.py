"""The decision over measurements, against its rules written out, with many slots."""

from collections import Counter

import numpy as np
import pytest
from kit.measures import lines_run

from training_gym.aggregate.fixed_point import Fixed
from training_gym.aggregate.robust import ASSUMED_BAD, OUTLIER, Measurement, decide, median


def measured(sketches: Fixed) -> dict[int, Measurement]:
    return {slot: Measurement(10**20, 10**20, sketch) for slot, sketch in enumerate(sketches)}


def codes(sketches: Fixed) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {"near_copy": [], "krum_outlier": []}
    for slot, verdict in decide(measured(sketches)).verdicts.items():
        if not verdict.included:
            found[verdict.code].append(slot)
    return found


def as_described(rows: list[list[int]]) -> dict[str, list[int]]:
    usual = median([median(row[:own] + row[own + 1 :]) for own, row in enumerate(rows)])
    kept: list[int] = []
    for slot, row in enumerate(rows):
        if all(2 * row[lower] >= usual for lower in kept):
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
    whole: Fixed = np.rint((apart + apart.T) * (1000 if seed % 2 else 4)).astype(int)
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
