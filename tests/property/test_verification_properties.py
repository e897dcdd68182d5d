"""Properties of verdicts for any answers, and of the sampling rate for any history."""

from collections import Counter
from math import log

from hypothesis import given
from hypothesis import strategies as st

from market.domain.verification.sampling import outvoted
from zoo_protocol.verification.rules import Verdict, sampling_rate_bps, verdict
from zoo_protocol.verification.sampling import draw, draw_weighted

CLAIM = "claim"
ADDRESSES = [f"0x{number:040x}" for number in range(1, 13)]
weights = st.dictionaries(st.sampled_from(ADDRESSES), st.integers(1, 10**24), min_size=1)
seeds = st.binary(min_size=32, max_size=32)
results = st.lists(st.sampled_from([CLAIM, "lie", "other", "third"]), max_size=6)


@given(results)
def test_rejection_needs_two_equal_refutations_leading_by_two(leaves: list[str]) -> None:
    found = Counter(leaves)
    for_it = found.pop(CLAIM, 0)
    lead = max(found.values(), default=0) - for_it
    assert (verdict(CLAIM, leaves) is Verdict.FAILED) == (for_it < 2 and lead >= 2)
    assert (verdict(CLAIM, leaves, no_verifier_left=True) is Verdict.FAILED) == (
        for_it < 2 <= lead + for_it and lead >= 1
    )


@given(results.flatmap(lambda leaves: st.tuples(st.just(leaves), st.permutations(leaves))))
def test_result_order_does_not_matter(both: tuple[list[str], list[str]]) -> None:
    assert verdict(CLAIM, both[0]) is verdict(CLAIM, both[1])


@given(results)
def test_verdict_is_always_reached(leaves: list[str]) -> None:
    assert verdict(CLAIM, [*leaves, CLAIM, CLAIM]) is Verdict.PASSED
    assert verdict(CLAIM, [CLAIM]) is Verdict.PASSED


@given(results)
def test_only_minorities_are_outvoted_by_two_agreeing(leaves: list[str]) -> None:
    wrong = outvoted(leaves)
    found = Counter(leaves)
    for leaf, count in found.items():
        assert (leaf in wrong) == any(other >= 2 and other > count for other in found.values())
    if verdict(CLAIM, leaves) is Verdict.PASSED:
        assert CLAIM not in wrong or found[CLAIM] < max(found.values())


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10_000), st.integers(1, 10_000))
def test_clean_work_never_raises_rate_or_breaks_floor(clean: int, more: int, newcomer: int, floor: int) -> None:
    rate = sampling_rate_bps(clean, newcomer, floor)
    assert max(newcomer, floor) >= rate >= sampling_rate_bps(clean + more, newcomer, floor) >= floor > 0


@given(seeds, weights, st.data())
def test_absent_or_restaked_verifiers_do_not_reorder_others(
    seed: bytes, given_weights: dict[str, int], data: st.DataObject
) -> None:
    """Otherwise an owner of many verifiers could choose who replays a unit."""
    drawn = draw_weighted(seed, "verifier", b"unit", given_weights)
    others = [address for address in given_weights if address != drawn]
    away = data.draw(st.sets(st.sampled_from(others))) if others else set()
    left = {address: weight for address, weight in given_weights.items() if address not in away}
    assert draw_weighted(seed, "verifier", b"unit", left) == drawn
    for address in others:
        more = given_weights | {address: given_weights[address] + data.draw(st.integers(1, 10**24))}
        assert draw_weighted(seed, "verifier", b"unit", more) in (drawn, address)


def test_selection_follows_own_number_by_weight() -> None:
    stakes, drawn = dict(zip(ADDRESSES, (1, 2, 5), strict=False)), Counter[str]()
    for number in range(4_000):
        seed = number.to_bytes(32, "big")
        found = draw_weighted(seed, "verifier", b"unit", stakes)
        own = {a: draw(seed, "verifier", b"unit" + bytes.fromhex(a[2:])) / 2**256 for a in stakes}
        assert found == min(stakes, key=lambda address: -log(own[address]) / stakes[address])
        drawn[found] += 1
    for address, stake in stakes.items():  # four standard deviations
        assert abs(drawn[address] - 4_000 * stake / 8) < 4 * (4_000 * stake / 8 * (1 - stake / 8)) ** 0.5
