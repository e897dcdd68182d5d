"""Queries over posts, earnings, leaves and claims."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from market.payments.rewards.models import RewardClaim, RewardEarning, RewardLeaf, RewardPost

_VALID = RewardPost.void_reason.is_(None)


def newest_valid(session: Session) -> RewardPost | None:
    return session.scalar(select(RewardPost).where(_VALID).order_by(RewardPost.id.desc()).limit(1))


def last_final(session: Session) -> RewardPost | None:
    """Return the newest valid post on chain."""
    final = select(RewardPost).where(_VALID, RewardPost.number.is_not(None))
    return session.scalar(final.order_by(RewardPost.id.desc()).limit(1))


def last_void(session: Session) -> RewardPost | None:
    """Return the newest post if it is void."""
    newest = session.scalar(select(RewardPost).order_by(RewardPost.id.desc()).limit(1))
    return newest if newest is not None and newest.void_reason is not None else None


def void_counts(session: Session) -> dict[str, int]:
    query = select(RewardPost.void_reason, func.count()).where(RewardPost.void_reason.is_not(None))
    return {str(reason): count for reason, count in session.execute(query.group_by(RewardPost.void_reason)).tuples()}


def lock_post(session: Session, post_id: int) -> RewardPost | None:
    return session.scalar(select(RewardPost).where(RewardPost.id == post_id).with_for_update())


def lock_by_root(session: Session, root: str) -> RewardPost | None:
    """Lock the valid post with this root that is not final yet."""
    waiting = select(RewardPost).where(RewardPost.root == root, _VALID, RewardPost.number.is_(None))
    return session.scalar(waiting.with_for_update())


def lock_by_number(session: Session, number: int) -> RewardPost | None:
    """Lock the post with this number in the contract."""
    return session.scalar(select(RewardPost).where(RewardPost.number == number).with_for_update())


def earned(session: Session, post_id: int) -> dict[str, int]:
    """Return cumulative earnings up to a post, in wei, by account."""
    query = select(RewardLeaf.account, RewardLeaf.cumulative_wei).where(RewardLeaf.post_id == post_id)
    return dict(session.execute(query).tuples().all())


def drop_other_leaves(session: Session, *post_ids: int) -> None:
    """Delete the proofs of all other posts. The contract accepts them no longer."""
    session.execute(delete(RewardLeaf).where(RewardLeaf.post_id.not_in(post_ids)))


def newest_leaves(session: Session, account: str) -> Sequence[Row[RewardPost, RewardLeaf]]:
    """Return an account's leaves in valid final posts, newest first."""
    query = (
        select(RewardPost, RewardLeaf)
        .join(RewardLeaf, RewardLeaf.post_id == RewardPost.id)
        .where(RewardLeaf.account == account, _VALID, RewardPost.number.is_not(None))
    )
    return session.execute(query.order_by(RewardPost.id.desc())).all()


def earnings_of(session: Session, account: str, after: int | None, limit: int) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return an account's earnings in valid posts below ``after`` with epochs, newest first."""
    own, post = RewardEarning, RewardPost
    query = (
        select(
            post.id.label("post"), post.first_epoch, post.last_epoch, own.base_wei, own.bandwidth_wei, own.verifier_wei
        )
        .join(own, own.post_id == post.id)
        .where(own.account == account, _VALID)
    )
    if after is not None:
        query = query.where(RewardPost.id < after)
    return session.execute(query.order_by(RewardPost.id.desc()).limit(limit)).all()


def claimed(session: Session, account: str) -> int:
    """Return an account's cumulative final claims in wei."""
    return session.scalar(select(RewardClaim.claimed_wei).where(RewardClaim.account == account)) or 0


def record_claim(session: Session, account: str, cumulative: int) -> None:
    statement = insert(RewardClaim).values(account=account, claimed_wei=cumulative)
    highest = func.greatest(RewardClaim.claimed_wei, cumulative)
    session.execute(
        statement.on_conflict_do_update(index_elements=[RewardClaim.account], set_={"claimed_wei": highest})
    )
