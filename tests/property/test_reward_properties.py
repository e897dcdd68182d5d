"""Rules of uptime, reliability and rewards, for any input."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from market.domain.network import BPS, DEVNET, EPOCH_SECONDS, NETWORKS, ZEN
from market.domain.nodes import uptime
from market.domain.nodes.reliability import DEMOTION_BPS, NEWCOMER_BPS, Evidence, reliability_bps
from market.domain.nodes.uptime import ALL_MINUTES, EPOCH_MINUTES, committed_minutes, is_breach, minutes_between
from market.domain.rewards import GIB, YEAR_MINUTES, Reward, Terms, Work, epoch_rewards
from zoo_protocol import merkle
from zoo_protocol.payments.reward_tree import build_tree, proves, reward_leaf

addresses = st.integers(1, 2**160 - 1).map(lambda number: f"0x{number:040x}")
counts = st.integers(0, 10_000)
evidence = st.builds(
    lambda verified, rejected, lost, up, down, slashes: Evidence(verified, rejected, lost, up, up + down, slashes),
    counts,
    counts,
    counts,
    st.integers(0, 1440),
    st.integers(0, 1440),
    st.integers(0, 3),
)
histories = st.dictionaries(st.integers(0, 200), evidence, max_size=8)
masks = st.integers(0, ALL_MINUTES)
works = st.lists(
    st.builds(Work, addresses, st.integers(0, 10**30), st.integers(0, 2**50), st.integers(0, 10**24)),
    max_size=20,
    unique_by=lambda work: work.account,
)
TERMS = Terms(2_000, ZEN // 100, 12_500)


def unbounded_rewards(*work: Work) -> list[Reward]:
    return epoch_rewards(work, TERMS, base_bound=10**40, replay_bound=10**40, budget=10**40)


@given(works, st.integers(0, 150), st.integers(0, 150), st.integers(0, 150))
def test_rewards_never_exceed_bounds_budget_or_rates(
    work: list[Work], bound_percent: int, replay_percent: int, budget_percent: int
) -> None:
    wanted = unbounded_rewards(*work)
    bound = sum(reward.base for reward in wanted) * bound_percent // 100
    replay_bound = sum(reward.verifier for reward in wanted) * replay_percent // 100
    budget = sum(reward.total for reward in wanted) * budget_percent // 100
    rewards = epoch_rewards(work, TERMS, base_bound=bound, replay_bound=replay_bound, budget=budget)
    assert sum(reward.base for reward in rewards) <= bound
    assert sum(reward.verifier for reward in rewards) <= replay_bound
    assert sum(reward.total for reward in rewards) <= budget
    by_account = {one.account: one for one in work}
    for reward in rewards:
        one = by_account[reward.account]
        assert 0 <= reward.base <= one.stake_minutes * 2_000 // (BPS * YEAR_MINUTES)
        assert 0 <= reward.bandwidth <= one.served_bytes * TERMS.wei_per_gib // GIB
        assert 0 <= reward.verifier <= one.replayed_wei * TERMS.replay_bps // BPS
    assert epoch_rewards(work[::-1], TERMS, base_bound=bound, replay_bound=replay_bound, budget=budget) == rewards


@given(works)
def test_sufficient_funds_pay_rates_to_all(work: list[Work]) -> None:
    rewards = {reward.account: reward for reward in unbounded_rewards(*work)}
    for one in work:
        whole = (
            one.stake_minutes * 2_000 // (BPS * YEAR_MINUTES)
            + one.served_bytes * TERMS.wei_per_gib // GIB
            + one.replayed_wei * TERMS.replay_bps // BPS
        )
        assert (rewards[one.account].total if one.account in rewards else 0) == whole


def test_full_year_uptime_earns_yearly_rate() -> None:
    work = Work("0x" + "11" * 20, 1_000 * ZEN * YEAR_MINUTES, 0, 0)
    [reward] = unbounded_rewards(work)
    assert reward.total == 200 * ZEN


def test_heavier_segment_pays_more_and_covers_its_cost() -> None:
    paid = []
    for segment_wei in (1, ZEN // 100, 4 * ZEN):
        work = [Work("0x" + "11" * 20, 0, 0, segment_wei)]
        [reward] = epoch_rewards(work, TERMS, base_bound=0, replay_bound=10**40, budget=10**40)
        assert reward.total == reward.verifier == segment_wei * 5 // 4 >= segment_wei
        paid.append(reward.verifier)
    assert paid == sorted(set(paid))
    assert all(network.replay_pay_bps > BPS for network in NETWORKS.values())


@given(st.dictionaries(addresses, st.integers(1, 2**100), min_size=1, max_size=20))
def test_every_leaf_is_proven_and_no_other_amount(earned: dict[str, int]) -> None:
    tree = build_tree(earned)
    for account, wei in earned.items():
        assert proves(tree.root, account, wei, tree.proofs[account])
        assert not proves(tree.root, account, wei + 1, tree.proofs[account])
    ordered = sorted(earned, key=lambda account: int(account, 16))
    assert tree.root == "0x" + merkle.root([reward_leaf(account, earned[account]) for account in ordered]).hex()


@given(histories)
def test_scores_are_bounded(history: dict[int, Evidence]) -> None:
    assert 0 <= reliability_bps(history) <= BPS


@given(histories, st.integers(0, 180), st.integers(1, 100))
def test_score_follows_good_and_bad_work(history: dict[int, Evidence], age: int, more: int) -> None:
    known = history.get(age, Evidence())
    score = reliability_bps(history)

    def with_(**changes: int) -> int:
        return reliability_bps({**history, age: replace(known, **changes)})

    assert with_(verified=known.verified + more) >= score
    assert with_(up_minutes=known.up_minutes + more, counted_minutes=known.counted_minutes + more) >= min(
        score, with_(up_minutes=known.up_minutes, counted_minutes=known.counted_minutes)
    )
    assert with_(replays=known.replays + more) >= score
    for name in ("rejected", "lost", "slashes"):
        assert with_(**{name: getattr(known, name) + more}) <= score
    if known.counted_minutes:
        assert with_(counted_minutes=known.counted_minutes + more) <= score


def test_score_ranks_best_new_and_worst() -> None:
    assert reliability_bps({}) == NEWCOMER_BPS
    assert reliability_bps({0: Evidence(verified=10_000, up_minutes=1440, counted_minutes=1440)}) > 9_990
    assert reliability_bps({0: Evidence(rejected=3)}) < DEMOTION_BPS
    assert reliability_bps({0: Evidence(up_minutes=720, counted_minutes=1440)}) == NEWCOMER_BPS // 2
    assert reliability_bps({0: Evidence(slashes=1)}) == NEWCOMER_BPS // 2


@given(st.integers(1, 100), st.integers(0, 100), st.integers(1, 60))
def test_bad_work_expires(lost: int, age: int, later: int) -> None:
    bad = Evidence(lost=lost, slashes=1)
    assert reliability_bps({age + later: bad}) >= reliability_bps({age: bad})


@given(st.lists(masks, max_size=9), st.integers(0, 12))
def test_minutes_count_when_half_of_usual_nodes_respond(seen: list[int], before: int) -> None:
    counted, usual = uptime.counted_minutes(seen, before)
    assert usual >= before
    for minute in range(0, EPOCH_MINUTES, 97):
        nodes = sum(mask >> minute & 1 for mask in seen)
        assert bool(counted >> minute & 1) == (nodes > 0 and 2 * nodes >= usual)


@given(st.integers(0, EPOCH_SECONDS), st.integers(0, EPOCH_SECONDS))
def test_minutes_between_two_times_lie_wholly_between_them(one: int, other: int) -> None:
    start, end = sorted((one, other))
    found = minutes_between(20_000, 20_000 * EPOCH_SECONDS + start, 20_000 * EPOCH_SECONDS + end)
    assert found == sum(1 << m for m in range(EPOCH_MINUTES) if start <= 60 * m and 60 * (m + 1) <= end)
    assert committed_minutes(20_000, [(0, 20_000 * EPOCH_SECONDS + start), (20_000 * EPOCH_SECONDS + end, 2e9)]) == (
        minutes_between(20_000, 0, 20_000 * EPOCH_SECONDS + start)
        | minutes_between(20_000, 20_000 * EPOCH_SECONDS + end, 2e9)
    )


def test_hourly_masks_form_epoch_minutes() -> None:
    assert uptime.seen_minutes({24 * 9 + hour: 2**60 - 1 for hour in range(24)}) == ALL_MINUTES
    assert uptime.seen_minutes({24 * 9 + 1: 1}) == 1 << 60


def test_breaches_of_each_tier_begin_beyond_grace() -> None:
    for sla, allowed in ((9_500, 72 + 30), (9_900, 14 + 30), (9_950, 7 + 30)):
        assert not is_breach(1440 - allowed, 1440, sla)
        assert is_breach(1440 - allowed - 1, 1440, sla)
    assert not is_breach(0, 239, 9_500)
    assert not is_breach(0, 1440, 0)
    assert uptime.uptime_bps(1296, 1440) == 9_000
    assert uptime.uptime_bps(0, 0) == BPS


def test_epoch_length_matches_networks() -> None:
    assert {network.reward_epoch_seconds for network in NETWORKS.values()} == {EPOCH_SECONDS}
    assert DEVNET.reward_delay_seconds <= EPOCH_SECONDS


@given(st.sets(st.integers(100 * 60, 103 * 60), min_size=1), st.integers(360_000, 371_000), st.integers(0, 7_200))
def test_silence_is_minute_without_any_known_node(seen: set[int], start: int, length: int) -> None:
    hours: dict[int, int] = {}
    for minute in seen:
        hours[minute // 60] = hours.get(minute // 60, 0) | 1 << minute % 60
    whole = [minute for minute in range(6_000, 6_400) if start <= minute * 60 and minute * 60 + 60 <= start + length]
    assert uptime.had_outage(hours, start, start + length) == any(
        minute not in seen and minute > min(seen) for minute in whole
    )
