"""The market's own record of a reward epoch, for comparison with what the chain has."""

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from market.payments.rewards.models import RewardEarning, RewardPost


@dataclass(frozen=True, slots=True)
class OwnPost:
    """A post of rewards that the market built, with its largest payees (account, wei)."""

    total_wei: int
    payee_count: int
    payees: tuple[tuple[str, int], ...]
    void_reason: str | None


def is_own_post(session: Session, root: str) -> bool:
    """Return True if the market built a post with this root."""
    return session.scalar(select(RewardPost.id).where(RewardPost.root == root).limit(1)) is not None


def own_post(session: Session, root: str, payees: int) -> OwnPost | None:
    """Return the market's newest post with this root, with the largest earnings."""
    row = session.scalar(select(RewardPost).where(RewardPost.root == root).order_by(RewardPost.id.desc()).limit(1))
    if row is None:
        return None
    mine = RewardEarning.post_id == row.id
    earned = RewardEarning.base_wei + RewardEarning.bandwidth_wei + RewardEarning.verifier_wei
    count = session.scalar(select(func.count()).where(mine)) or 0
    largest = select(RewardEarning.account, earned.label("earned")).where(mine)
    found = session.execute(largest.order_by(earned.desc(), RewardEarning.account).limit(payees))
    return OwnPost(
        total_wei=row.base_wei + row.bandwidth_wei + row.verifier_wei,
        payee_count=count,
        payees=tuple((account, int(wei)) for account, wei in found),
        void_reason=row.void_reason,
    )
