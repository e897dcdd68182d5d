"""Rewards: pay evaluated epochs by a Merkle root over cumulative earnings.

A post covers all epochs evaluated since the last valid post. It is built from immutable rows on top of the root in
force on chain, in one transaction with its intent. After a veto its epochs enter the next post, which comes with the
next epoch: that leaves time to find the cause.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from sqlalchemy.orm import Session

from market.chain.contracts.bindings import Emission, Rewards
from market.chain.contracts.codec import ChainEvent
from market.chain.models import TxIntent
from market.chain.service import intent_by_key, queue_intent
from market.chain.views import ChainViews, RewardsState
from market.domain.lifecycle import IntentStatus
from market.domain.network import BPS, NetworkParameters
from market.domain.nodes.uptime import epoch_of
from market.domain.rewards import Terms, epoch_rewards
from market.payments.rewards import repository
from market.payments.rewards.models import RewardEarning, RewardLeaf, RewardPost
from market.payments.rewards.schemas import RewardProof
from market.platform.db.base import from_unix, utc_now
from market.platform.db.session import Database
from market.providers import service as providers
from zoo_protocol.hashing import to_hex
from zoo_protocol.payments.reward_tree import build_tree

_log = structlog.get_logger(__name__)
VETOED, REFUSED = "rewards_vetoed", "rewards_refused"
_RETRY = timedelta(minutes=10)
_NO_ROOT = to_hex(bytes(32))
_KIND = "post_rewards"


@dataclass(frozen=True, slots=True)
class _Span:
    """The epochs of the next post, and the valid post below it."""

    first: int
    last: int
    below: RewardPost | None


def post(database: Database, network: NetworkParameters, chain: ChainViews, now: datetime) -> None:
    """Post the rewards of due epochs unless the last post is still in its challenge period.

    One worker at a time holds the advisory lock.

    Raises:
        ChainError: the chain does not answer. The epochs stay due.
    """
    with database.advisory_lock("rewards.post") as alone:
        if not alone:
            return
        with database.transaction() as session:
            span = _due(session, now)
            if span is None or not _is_released(session, span):
                return
        state = chain.rewards()
        if state.is_pending or state.time < state.next_post_at or not _extends_root_in_force(span, state):
            return
        with database.transaction() as session:
            _build(session, network, span, state)


def void_posts(session: Session) -> dict[str, int]:
    """Return the number of void posts by reason, zeros included for monitoring."""
    return {VETOED: 0, REFUSED: 0} | repository.void_counts(session)


def unposted_epochs(session: Session, now: datetime) -> int:
    """Return the number of ended epochs in no valid post on chain; 0 before the first node.

    One to three are usual: an epoch is evaluated after its end and waits for the previous post's challenge period.
    """
    known, below = providers.first_known_epoch(session), repository.last_final(session)
    if known is None:
        return 0
    first = known if below is None else below.last_epoch + 1
    return max(0, epoch_of(now.timestamp()) - first)


def _due(session: Session, now: datetime) -> _Span | None:
    below, void = repository.newest_valid(session), repository.last_void(session)
    judged = providers.evaluated_epochs(session)
    if judged is None or (below is not None and (below.claimable_at is None or now < below.claimable_at)):
        return None
    first, last = judged
    if void is not None and void.voided_at is not None:
        is_early = last <= void.last_epoch if void.void_reason == VETOED else now < void.voided_at + _RETRY
        if is_early:
            return None
    first = first if below is None else below.last_epoch + 1
    return _Span(first, last, below) if first <= last else None


def _is_released(session: Session, span: _Span) -> bool:
    """Return true if the emission due by now is minted; otherwise queue the call."""
    # Any account may make that call first. The market's own call reverts then, which is equivalent.
    key = f"release_emission:{span.last}"
    made = intent_by_key(session, key)
    if made is None:
        queue_intent(session, key=key, kind="release_emission", subject=key, **Emission.release())
        return False
    return made.status in (IntentStatus.FINAL, IntentStatus.REVERTED)


def _extends_root_in_force(span: _Span, state: RewardsState) -> bool:
    """Return True if the valid post's root is in force; on another one claims would be lost."""
    expected = (_NO_ROOT, 0) if span.below is None else (span.below.root, span.below.total_wei)
    if (state.root, state.total_wei) == expected:
        return True
    _log.error("foreign_rewards_root", root=state.root, expected=expected[0])
    return False


def _build(session: Session, network: NetworkParameters, span: _Span, state: RewardsState) -> None:
    terms = Terms(state.apy_bps, network.bandwidth_wei_per_gib, network.replay_pay_bps)
    rewards = epoch_rewards(
        providers.reward_work(session, span.first, span.last),
        terms,
        base_bound=state.base_bound_wei,
        replay_bound=state.post_bound_wei * network.replay_budget_bps // BPS,
        budget=state.post_bound_wei,
    )
    if not rewards:
        return
    totals = repository.earned(session, span.below.id) if span.below else {}
    for reward in rewards:
        totals[reward.account] = totals.get(reward.account, 0) + reward.total
    tree = build_tree(totals)
    row = RewardPost(
        first_epoch=span.first,
        last_epoch=span.last,
        root=tree.root,
        base_wei=sum(reward.base for reward in rewards),
        bandwidth_wei=sum(reward.bandwidth for reward in rewards),
        verifier_wei=sum(reward.verifier for reward in rewards),
        total_wei=sum(totals.values()),
    )
    session.add(row)
    session.flush()
    repository.drop_other_leaves(session, *([span.below.id] if span.below else []))
    session.add_all(
        RewardEarning(
            account=reward.account,
            post_id=row.id,
            base_wei=reward.base,
            bandwidth_wei=reward.bandwidth,
            verifier_wei=reward.verifier,
        )
        for reward in rewards
    )
    session.add_all(
        RewardLeaf(account=account, post_id=row.id, cumulative_wei=total, proof=tree.proofs[account])
        for account, total in totals.items()
    )
    queue_intent(
        session,
        key=f"{_KIND}:{row.id}",
        kind=_KIND,
        subject=str(row.id),
        **Rewards.postEpoch(row.root, row.base_wei, row.bandwidth_wei, row.verifier_wei),
        amount=row.base_wei + row.bandwidth_wei + row.verifier_wei,
    )


def on_post_intent(session: Session, intent: TxIntent) -> None:
    """Make a reverted ``post_rewards`` intent's post void. A later one follows after a delay."""
    row = repository.lock_post(session, int(intent.subject))
    if intent.status == IntentStatus.REVERTED and row is not None:
        _log.error("rewards_refused", post=row.id, reason=intent.reason, detail=intent.detail)
        row.void_reason, row.voided_at = REFUSED, utc_now()


def on_epoch_posted(session: Session, event: ChainEvent) -> None:
    """Store the contract's number and claim time of a final post."""
    row = repository.lock_by_root(session, event.args["root"])
    if row is None:
        _log.error("foreign_rewards_epoch", number=event.args["number"], tx=event.tx_hash)
        return
    row.number, row.claimable_at = event.args["number"], from_unix(event.args["claimableAt"])


def on_epoch_vetoed(session: Session, event: ChainEvent) -> None:
    """Make a vetoed post void. Its rewards stay due."""
    row = repository.lock_by_number(session, event.args["number"])
    if row is not None:
        row.void_reason, row.voided_at = VETOED, utc_now()
        _log.error("rewards_vetoed", post=row.id, number=row.number, tx=event.tx_hash)


def on_claimed(session: Session, event: ChainEvent) -> None:
    """Store an account's final claim."""
    repository.record_claim(session, event.args["account"], event.args["cumulative"])


def claimable(session: Session, account: str, now: datetime) -> tuple[RewardProof | None, RewardProof | None, int]:
    """Return an account's open claim, its claim under challenge, and its final claims in wei."""
    leaves, claimed = repository.newest_leaves(session, account), repository.claimed(session, account)
    found = [
        RewardProof(
            epoch=post.number or 0,
            root=post.root,
            cumulative_wei=leaf.cumulative_wei,
            amount_wei=leaf.cumulative_wei - claimed,
            proof=leaf.proof,
            claimable_at=post.claimable_at or post.created_at,
        )
        for post, leaf in leaves
    ]
    in_force = next((proof for proof in found if proof.claimable_at <= now), None)
    waiting = next((proof for proof in found if proof.claimable_at > now), None)
    return _if_due(in_force), _if_due(waiting), claimed


def _if_due(proof: RewardProof | None) -> RewardProof | None:
    return proof if proof is not None and proof.amount_wei > 0 else None
