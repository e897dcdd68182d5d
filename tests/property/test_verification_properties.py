"""What holds of verdicts whatever verifiers say, and of the sampling rate whatever the history."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from market.domain.verification import Verdict, sampling_rate_bps, verdict

CLAIM = "claim"
results = st.lists(st.sampled_from([CLAIM, "lie", "other", "third"]), max_size=6)


@given(results)
def test_a_conviction_needs_two_equal_refutations_and_no_confirmation(said: list[str]) -> None:
    convicts = CLAIM not in said and any(count >= 2 for count in Counter(said).values())
    assert (verdict(CLAIM, said) is Verdict.FAILED) == convicts


@given(results.flatmap(lambda said: st.tuples(st.just(said), st.permutations(said))))
def test_the_order_of_results_does_not_matter(both: tuple[list[str], list[str]]) -> None:
    assert verdict(CLAIM, both[0]) is verdict(CLAIM, both[1])


@given(results)
def test_a_verdict_is_always_reached(said: list[str]) -> None:
    """Verifiers are asked until there is one: an honest result always settles it."""
    assert verdict(CLAIM, [*said, CLAIM]) is Verdict.PASSED


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10_000), st.integers(1, 10_000))
def test_more_clean_work_never_raises_the_rate_nor_sinks_it_below_the_floor(
    clean: int, more: int, newcomer: int, floor: int
) -> None:
    rate = sampling_rate_bps(clean, newcomer, floor)
    assert max(newcomer, floor) >= rate >= sampling_rate_bps(clean + more, newcomer, floor) >= floor > 0
