"""Rewards: pay what judged epochs earned, by one Merkle root over all that every account has earned ever.

A post covers every epoch that was judged since the last one that stands. It is built from rows that never change any
more, on top of the root that is in force on chain, and written together with the intent that posts it. A vetoed post is
void: its epochs go into the next one, which comes with the next epoch, so that people have time to see what was wrong.
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
    """The epochs that are to be paid next, on top of the post that stands."""

    first: int
    last: int
    below: RewardPost | None


def post(database: Database, network: NetworkParameters, chain: ChainViews, now: datetime) -> None:
    """Post what was earned, if an epoch is due; nothing happens while another worker is at it or the last post waits.

    Raises:
        ChainError: the chain gives no good answer; what was due stays due.
    """
    with database.advisory_lock("rewards.post") as alone:
        if not alone:
            return
        with database.transaction() as session:
            span = _due(session, now)
            if span is None or not _is_released(session, span):
                return
        state = chain.rewards()
        if state.is_pending or state.time < state.next_post_at or not _is_on_top(span, state):
            return
        with database.transaction() as session:
            _build(session, network, span, state)


def void_posts(session: Session) -> dict[str, int]:
    """How many posts came to nothing, by reason; 0 for one that never occurred, so that its growth can be seen."""
    return {VETOED: 0, REFUSED: 0} | repository.void_counts(session)


def unposted_epochs(session: Session, now: datetime) -> int:
    """How many epochs that are over are in no post that stands on chain; 0 before anything is known of nodes.

    One to three are usual: an epoch is judged after its end, and waits until the post before it is in force.
    """
    known, below = providers.first_known_epoch(session), repository.last_final(session)
    if known is None:
        return 0
    first = known if below is None else below.last_epoch + 1
    return max(0, epoch_of(now.timestamp()) - first)


def _due(session: Session, now: datetime) -> _Span | None:
    below, void = repository.last_standing(session), repository.last_void(session)
    judged = providers.judged_epochs(session)
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
    """Whether what the emission's schedule allows by now has been minted; asks for it otherwise.

    Anybody may do so, in which case our own call is refused, and that is as good.
    """
    key = f"release_emission:{span.last}"
    made = intent_by_key(session, key)
    if made is None:
        queue_intent(session, key=key, kind="release_emission", subject=key, **Emission.release())
        return False
    return made.status in (IntentStatus.FINAL, IntentStatus.REVERTED)


def _is_on_top(span: _Span, state: RewardsState) -> bool:
    """Whether the root in force is the one that our next tree continues. Another would take claims away."""
    expected = (_NO_ROOT, 0) if span.below is None else (span.below.root, span.below.total_wei)
    if (state.root, state.total_wei) == expected:
        return True
    _log.error("the root of rewards on chain is not ours; nothing is posted", root=state.root, expected=expected[0])
    return False


def _build(session: Session, network: NetworkParameters, span: _Span, state: RewardsState) -> None:
    terms = Terms(state.apy_bps, network.bandwidth_wei_per_gib, network.replay_pay_bps)
    budget = state.funded_wei - state.total_wei
    rewards = epoch_rewards(
        providers.reward_work(session, span.first, span.last),
        terms,
        base_bound=state.base_bound_wei,
        replay_bound=budget * network.replay_budget_bps // BPS,
        budget=budget,
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
    repository.keep_leaves_of(session, *([span.below.id] if span.below else []))
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
    """Handler of ``post_rewards`` intents: one that the contract refused is void, and built anew in a while."""
    row = repository.lock_post(session, int(intent.subject))
    if intent.status == IntentStatus.REVERTED and row is not None:
        _log.error("rewards refused by the contract", post=row.id, reason=intent.reason, detail=intent.detail)
        row.void_reason, row.voided_at = REFUSED, utc_now()


def on_epoch_posted(session: Session, event: ChainEvent) -> None:
    """Handler of the final event: claims open at ``claimableAt``, unless a guardian vetoes the epoch before."""
    row = repository.lock_by_root(session, event.args["root"])
    if row is None:
        _log.error("an epoch of rewards that this market did not make", number=event.args["number"], tx=event.tx_hash)
        return
    row.number, row.claimable_at = event.args["number"], from_unix(event.args["claimableAt"])


def on_epoch_vetoed(session: Session, event: ChainEvent) -> None:
    """Handler of the final event: the epoch is as if it had never been posted; what was earned in it stays due."""
    row = repository.lock_by_number(session, event.args["number"])
    if row is not None:
        row.void_reason, row.voided_at = VETOED, utc_now()
        _log.error("rewards vetoed by a guardian", post=row.id, number=row.number, tx=event.tx_hash)


def on_claimed(session: Session, event: ChainEvent) -> None:
    """Handler of the final event: an account took what it had earned."""
    repository.note_claim(session, event.args["account"], event.args["cumulative"])


@dataclass(frozen=True, slots=True)
class Standing:
    """What an account has earned ever by one post, with the proof that the contract takes. Amounts in wei."""

    number: int
    root: str
    cumulative_wei: int
    proof: list[str]
    claimable_at: datetime


@dataclass(frozen=True, slots=True)
class Earning:
    """What an account earned by one post, for the epochs from ``first_epoch`` to ``last_epoch``. Amounts in wei."""

    post_id: int
    first_epoch: int
    last_epoch: int
    base_wei: int
    bandwidth_wei: int
    verifier_wei: int


def claimable(session: Session, account: str, now: datetime) -> tuple[Standing | None, Standing | None, int]:
    """(the leaf in force, the one that still waits, all that was claimed in wei) of an account."""
    found = [
        Standing(post.number or 0, post.root, leaf.cumulative_wei, leaf.proof, post.claimable_at or post.created_at)
        for post, leaf in repository.newest_leaves(session, account)
    ]
    waiting = next((leaf for leaf in found if leaf.claimable_at > now), None)
    in_force = next((leaf for leaf in found if leaf.claimable_at <= now), None)
    return in_force, waiting, repository.claimed(session, account)


def earnings(session: Session, account: str, after: int | None, limit: int) -> list[Earning]:
    """What the account earned, newest first."""
    return [
        Earning(post.id, post.first_epoch, post.last_epoch, own.base_wei, own.bandwidth_wei, own.verifier_wei)
        for post, own in repository.earnings_of(session, account, after, limit)
    ]
