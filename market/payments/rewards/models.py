"""Tables of rewards: posts, each account's earnings, and the proofs for its claims.

A post, its parts and the intent that posts it are written in one transaction.
"""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, String, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Address, Base, CreatedAt, Hash32, UtcDateTime, Wei


class RewardPost(Base, CreatedAt):
    """A call of ``Rewards.postEpoch`` for epochs ``first_epoch`` to ``last_epoch``."""

    __tablename__ = "reward_posts"
    __table_args__ = (
        # No epoch is paid twice. After a veto the same epoch may be posted again.
        Index("uq_reward_posts_first_epoch", "first_epoch", unique=True, postgresql_where=text("void_reason IS NULL")),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    first_epoch: Mapped[int] = mapped_column(BigInteger)
    last_epoch: Mapped[int] = mapped_column(BigInteger)
    root: Mapped[str] = mapped_column(Hash32)
    base_wei: Mapped[int] = mapped_column(Wei)
    bandwidth_wei: Mapped[int] = mapped_column(Wei)
    verifier_wei: Mapped[int] = mapped_column(Wei)
    total_wei: Mapped[int] = mapped_column(Wei)  # of all leaves: everything ever earned
    number: Mapped[int | None] = mapped_column(BigInteger, unique=True)  # in the contract, once final
    claimable_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    void_reason: Mapped[str | None] = mapped_column(String(64))  # rewards_vetoed | rewards_refused
    voided_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class RewardEarning(Base):
    """One account's earnings in the epochs of one post."""

    __tablename__ = "reward_earnings"

    account: Mapped[str] = mapped_column(Address, primary_key=True)
    post_id: Mapped[int] = mapped_column(ForeignKey(RewardPost.id), primary_key=True)
    base_wei: Mapped[int] = mapped_column(Wei)
    bandwidth_wei: Mapped[int] = mapped_column(Wei)
    verifier_wei: Mapped[int] = mapped_column(Wei)


class RewardLeaf(Base):
    """One account's cumulative earnings with their proof. Kept for the last two posts."""

    __tablename__ = "reward_leaves"

    account: Mapped[str] = mapped_column(Address, primary_key=True)
    post_id: Mapped[int] = mapped_column(ForeignKey(RewardPost.id), primary_key=True, index=True)
    cumulative_wei: Mapped[int] = mapped_column(Wei)
    proof: Mapped[list[str]] = mapped_column(JSONB)


class RewardClaim(Base):
    """One account's cumulative final claims."""

    __tablename__ = "reward_claims"

    account: Mapped[str] = mapped_column(Address, primary_key=True)
    claimed_wei: Mapped[int] = mapped_column(Wei)
