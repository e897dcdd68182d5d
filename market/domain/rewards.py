"""Rewards of an epoch in wei. Divisions floor; the contract keeps the remainder."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from market.domain.network import BPS

GIB = 2**30
YEAR_MINUTES = 365 * 24 * 60


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one account in the epochs that are paid.

    - ``stake_minutes``: stake in wei, summed over the minutes in which the node was up and active. A verifier's counts
      only in epochs in which it replayed at least half of its segments.
    - ``served_bytes``: measured uploads and proven copies.
    - ``replayed_wei``: gross price of the segments whose replay agreed with the decision.
    """

    account: str
    stake_minutes: int
    served_bytes: int
    replayed_wei: int


@dataclass(frozen=True, slots=True)
class Terms:
    """Reward rates: yearly on stake, per GiB, and on the gross price of replayed segments.

    ``replay_bps`` is above 10,000, so that an honest replay pays more than its computation costs.
    """

    apy_bps: int
    wei_per_gib: int
    replay_bps: int


@dataclass(frozen=True, slots=True)
class Reward:
    account: str
    base: int
    bandwidth: int
    verifier: int

    @property
    def total(self) -> int:
        return self.base + self.bandwidth + self.verifier


def epoch_rewards(
    work: Iterable[Work], terms: Terms, *, base_bound: int, replay_bound: int, budget: int
) -> list[Reward]:
    """Return the positive rewards by account; sums above a bound are scaled down.

    Args:
        base_bound: bound of all base rewards in wei, from the contract's bound on the yearly rate.
        replay_bound: bound of all replay rewards in wei. Without it, self-dealing at a high price takes the budget.
        budget: bound of everything in wei: the share of its unposted funds that the contract allows in one post.
    """
    full = [
        Reward(
            account=one.account,
            base=one.stake_minutes * terms.apy_bps // (BPS * YEAR_MINUTES),
            bandwidth=one.served_bytes * terms.wei_per_gib // GIB,
            verifier=one.replayed_wei * terms.replay_bps // BPS,
        )
        for one in sorted(work, key=lambda one: int(one.account, 16))
    ]
    wanted = sum(reward.base for reward in full)
    if wanted > base_bound:
        full = [replace(reward, base=reward.base * base_bound // wanted) for reward in full]
    wanted = sum(reward.verifier for reward in full)
    if wanted > replay_bound:
        full = [replace(reward, verifier=reward.verifier * replay_bound // wanted) for reward in full]
    wanted = sum(reward.total for reward in full)
    if wanted > budget:
        full = [
            replace(
                reward,
                base=reward.base * budget // wanted,
                bandwidth=reward.bandwidth * budget // wanted,
                verifier=reward.verifier * budget // wanted,
            )
            for reward in full
        ]
    return [reward for reward in full if reward.total]
