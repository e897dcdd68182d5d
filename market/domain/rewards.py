"""What an epoch's rewards come to, in integer wei. Every division floors; what is left stays in the contract."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from market.domain.network import BPS

GIB = 2**30
YEAR_MINUTES = 365 * 24 * 60


@dataclass(frozen=True, slots=True)
class Work:
    """What one account did in the epochs that are paid.

    ``stake_minutes``: its stake in wei, summed over the minutes in which it was up and active. ``served_bytes``: what
    the market measured of its uploads and proven copies. ``replayed_wei``: gross price of the segments
    that it replayed, its result agreeing with the decision.
    """

    account: str
    stake_minutes: int
    served_bytes: int
    replayed_wei: int


@dataclass(frozen=True, slots=True)
class Terms:
    """The rates: yearly on stake in basis points, wei per GiB, basis points of what replayed segments cost the payer.

    ``replay_bps`` is above 10,000, so that an honest replay brings more than computing the segment costs.
    """

    apy_bps: int
    wei_per_gib: int
    replay_bps: int


@dataclass(frozen=True, slots=True)
class Reward:
    """What one account earned, in wei."""

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
    """Who earned what, by account; those who earned nothing are left out.

    The base rewards together stay within ``base_bound`` (the contract's bound on the yearly rate), those for replays
    within ``replay_bound`` (or who trades with itself at a high price could starve all others), and everything within
    ``budget`` (what the contract was funded with and has not promised yet), all in wei: where they do not suffice, all
    are cut alike.
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
