"""Uptime judged, penalties executed and rewards paid on a real chain, to the wei."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from api_support import sign_in
from eth_account import Account as Wallets
from jobs_world import at_once
from sqlalchemy import select, update
from support.anvil import AnvilProcess
from support.chain import ADMIN, OTHER, PAYER, PROVIDER, Chain, Wallet, chain_settings, deploy_contracts, wallet

from market.accounts.models import Account
from market.chain.indexer import Indexer
from market.chain.models import TxIntent
from market.db.base import from_unix
from market.db.session import Database
from market.domain.lifecycle import ProviderStatus
from market.domain.network import DEVNET, EPOCH_SECONDS, ZEN
from market.domain.uptime import ALL_MINUTES, EPOCH_HOURS, epoch_of, minute_of
from market.ledger.reconciliation import reconcile
from market.ledger.service import balances
from market.providers import records, reviews, uptime
from market.providers import service as providers
from market.providers.models import DowntimePenalty, HeartbeatHour, JudgedEpoch, Provider, ProviderEpoch
from market.rewards import service as rewards
from market.rewards.models import RewardPost
from market.storage.service import Storage
from worker.context import INTENT_HANDLERS, event_handlers
from zoo_compute.models import Network, Rewards
from zoo_compute.rewards import take
from zoo_compute.wallet import Wallet as ClientWallet
from zoo_protocol.hashing import canonical_json

STAKE = 1_000 * ZEN
NODES = [PROVIDER, OTHER, wallet(6), wallet(7)]
HOUR = (1 << 60) - 1
DAYS_BASE = STAKE * 1440 * 2_000 // (10_000 * 365 * 1440)
"""What a day's full uptime on ``STAKE`` earns at 20 % a year."""


@pytest.fixture(scope="module")
def own_anvil() -> Iterator[AnvilProcess]:
    """A chain of its own: days pass on it."""
    with AnvilProcess() as process:
        yield process


@dataclass
class RewardsWorld:
    chain: Chain
    database: Database
    storage: Storage

    def __post_init__(self) -> None:
        """Four active nodes, two of them staked on chain; the first whole day is the one after."""
        self.day = epoch_of(self.now().timestamp()) + 1
        for node in (PROVIDER, OTHER):
            self.chain.stake(node, STAKE)
        with self.database.transaction() as session:
            for node in NODES:
                session.add(Account(address=node.address))
            session.flush()
            for node in NODES:
                session.add(
                    Provider(
                        address=node.address,
                        kind="provider",
                        name="node",
                        region="eu",
                        hardware={},
                        environment_class="0x" + "aa" * 32,
                        status=ProviderStatus.ACTIVE,
                        tier_id=1,
                        created_at=self.now() - timedelta(days=1),
                    )
                )
        self.index()

    def now(self) -> datetime:
        return from_unix(self.chain.client().head().timestamp)

    def pass_day(self) -> None:
        """Let the present day end and its judgement become due, and what was posted a day ago be in force."""
        end, day_later = (self.day + 1) * EPOCH_SECONDS + 180, int(self.now().timestamp()) + EPOCH_SECONDS
        self.chain.anvil.rpc("evm_setNextBlockTimestamp", max(end, day_later))
        self.chain.anvil.mine()
        self.day += 1

    def beat(self, node: Wallet, seen: int = ALL_MINUTES, stake: int = STAKE) -> None:
        """The node was seen in these minutes of the day."""
        with self.database.transaction() as session:
            for hour in range(EPOCH_HOURS):
                if minutes := seen >> 60 * hour & HOUR:
                    number = self.day * EPOCH_HOURS + hour
                    session.add(HeartbeatHour(hour=number, provider=node.address, minutes=minutes, stake_wei=stake))

    def beat_all(self, **seen: int) -> None:
        """All nodes were seen all day; those named only in their minutes."""
        for name, node in zip(("first", "second", "third", "fourth"), NODES, strict=True):
            self.beat(node, seen.get(name, ALL_MINUTES), STAKE if node in (PROVIDER, OTHER) else 0)

    def judge(self) -> None:
        uptime.judge(self.database, self.storage, DEVNET, self.now())

    def post(self) -> None:
        rewards.post(self.database, DEVNET, self.chain.views, self.now())

    def posted(self) -> None:
        """Judge, release the emission and post, all final."""
        self.judge()
        for _ in range(2):
            self.post()
            self.finalise()

    def finalise(self) -> None:
        sender = self.chain.sender(self.database, INTENT_HANDLERS)
        while sender.step():
            pass
        self.chain.anvil.mine(3)
        while sender.step():
            pass
        self.index()

    def index(self) -> None:
        self.chain.anvil.mine(3)
        handlers = event_handlers(DEVNET, self.chain.deployment)
        indexer = Indexer(self.database, self.chain.client(), self.chain.deployment, handlers)
        while indexer.step():
            pass

    def rows(self, query: Any) -> list[Any]:
        with self.database.transaction() as session:
            return list(session.scalars(query))

    def posts(self) -> list[RewardPost]:
        return self.rows(select(RewardPost).order_by(RewardPost.id))

    def node(self, node: Wallet) -> Provider:
        with self.database.transaction() as session:
            return session.get_one(Provider, node.address)

    def claim(self, node: Wallet) -> int:
        """The node claims what is in force; what it got."""
        with self.database.transaction() as session:
            leaf, _, _ = rewards.claimable(session, node.address, self.now())
        assert leaf is not None
        before = self.chain.views.balance_of(node.address)
        self.chain.send(node, "Rewards", "claim", node.address, leaf.cumulative_wei, leaf.proof)
        return self.chain.views.balance_of(node.address) - before

    def check(self) -> None:
        self.index()
        found = reconcile(self.database, self.chain.client(), self.chain.deployment)
        assert found.difference_wei == 0, found.as_json()


@pytest.fixture
def market(own_anvil: AnvilProcess, database: Database, ipfs: dict[str, str], tmp_path: Path) -> RewardsWorld:
    deployment = deploy_contracts(own_anvil)  # the days that passed before are not this one's
    own_anvil.mine(3)
    chain = Chain(own_anvil, deployment, chain_settings(own_anvil, deployment, tmp_path))
    return RewardsWorld(chain, database, Storage(ipfs["rpc"], lookup_timeout=0.2))


def ninety_percent() -> int:
    """Up but for 144 minutes in the middle of the day."""
    return ALL_MINUTES & ~(((1 << 144) - 1) << 600)


def test_two_epochs_are_posted_and_claimed_to_the_wei(
    market: RewardsWorld, api: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    market.pass_day()
    first = market.day
    market.beat_all(second=ninety_percent())
    with market.database.transaction() as session:
        noon = from_unix(first * EPOCH_SECONDS + EPOCH_SECONDS // 2)
        providers.note_served(session, wallet(6).address, 3 * 2**30, noon)
        providers.note_replay(session, wallet(7).address, noon)
    market.pass_day()
    market.posted()
    [post] = market.posts()
    assert (post.first_epoch, post.last_epoch, post.number) == (first, first, 1)
    assert (post.base_wei, post.bandwidth_wei, post.verifier_wei) == (
        DAYS_BASE + STAKE * 1296 * 2_000 // (10_000 * 365 * 1440),
        3 * DEVNET.bandwidth_wei_per_gib,
        DEVNET.verifier_wei_per_replay,
    )
    market.check()
    market.post()
    assert len(market.posts()) == 1  # nothing more is due

    market.beat_all()
    market.pass_day()
    market.posted()
    second = market.posts()[1]
    assert (second.first_epoch, second.base_wei, second.bandwidth_wei) == (first + 1, 2 * DAYS_BASE, 0)
    with market.database.transaction() as session:  # the first is in force until the second one's delay is over
        in_force, waiting, _ = rewards.claimable(session, PROVIDER.address, market.now())
    assert in_force is not None
    assert waiting is not None
    assert (in_force.cumulative_wei, waiting.cumulative_wei) == (DAYS_BASE, 2 * DAYS_BASE)
    assert market.claim(PROVIDER) == DAYS_BASE
    market.check()

    market.pass_day()
    monkeypatch.setattr("market.rewards.router.utc_now", market.now)
    caller = sign_in(api, Wallets.from_key(PROVIDER.key))
    shown = Rewards.model_validate(api.get("/v1/rewards", headers=caller.headers).json())
    assert shown.claimed_wei == DAYS_BASE
    assert [earned.base_wei for earned in shown.earnings] == [DAYS_BASE, DAYS_BASE]
    network = Network(
        name="devnet",
        chain_id=31337,
        rpc_url=market.chain.anvil.url,
        gateway_url="",
        contracts=dict(market.chain.deployment.contracts),
        fee_bps=0,
        sampling_floor_bps=0,
        challenge_seconds=0,
        verifier_minimum_stake_wei=0,
        tiers={},
    )
    before = market.chain.views.balance_of(PAYER.address)
    taken, tx = take(shown, network, ClientWallet(PROVIDER.key), PAYER.address)
    assert taken is not None
    assert tx is not None
    assert market.chain.views.balance_of(PAYER.address) - before == taken.amount_wei == DAYS_BASE
    assert take(shown, network, ClientWallet(PROVIDER.key), None) == (None, None)  # the market has not seen it yet
    earned = [market.claim(node) for node in NODES[1:]]
    assert DAYS_BASE * 2 + sum(earned) == second.total_wei
    market.check()
    again = Rewards.model_validate(api.get("/v1/rewards", headers=caller.headers).json())
    assert (again.claimable, again.claimed_wei) == (None, 2 * DAYS_BASE)
    assert market.chain.views.rewards().total_wei == second.total_wei


def test_a_crash_while_it_is_built_leaves_nothing_and_the_same_is_built_again(
    market: RewardsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    market.pass_day()
    market.beat_all()
    market.pass_day()
    market.judge()
    market.post()
    market.finalise()  # the emission

    roots = []

    def fall(*_: object, **call: Any) -> None:
        roots.append(call["arguments"][0])
        raise KeyboardInterrupt

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(rewards, "queue_intent", fall)
            with pytest.raises(KeyboardInterrupt):
                market.post()
        assert market.posts() == []
    assert at_once([market.post] * 4) == [None] * 4
    [post] = market.posts()
    assert roots == [post.root, post.root]
    market.post()  # a restart before it is sent
    market.finalise()
    market.post()
    [post] = market.posts()
    assert post.number == 1
    assert len(market.rows(select(TxIntent).where(TxIntent.kind == "post_rewards"))) == 1
    market.check()


def test_a_vetoed_epoch_is_paid_with_the_next_one(market: RewardsWorld) -> None:
    market.pass_day()
    for _ in range(2):
        market.beat_all()
        market.pass_day()
        market.posted()
    market.chain.send(ADMIN, "Rewards", "veto")
    market.finalise()
    [stands, vetoed] = market.posts()
    assert (stands.void_reason, vetoed.void_reason) == (None, rewards.VETOED)
    with market.database.transaction() as session:
        held = balances(session, "rewards")
    assert held.get("rewards:pending", 0) == 0
    assert held["rewards:posted"] == stands.total_wei
    market.check()
    market.posted()
    assert len(market.posts()) == 2  # there is a day to find out what was wrong

    market.beat_all()
    market.pass_day()
    market.posted()
    post = market.posts()[2]
    two_days = STAKE * 2 * 1440 * 2_000 // (10_000 * 365 * 1440)
    assert (post.first_epoch, post.last_epoch) == (vetoed.first_epoch, vetoed.first_epoch + 1)
    assert (post.base_wei, post.total_wei) == (2 * two_days, 2 * (DAYS_BASE + two_days))
    market.pass_day()
    assert (market.claim(PROVIDER), market.claim(OTHER)) == (DAYS_BASE + two_days, DAYS_BASE + two_days)
    market.check()


def test_a_root_that_is_not_ours_on_chain_stops_posting(market: RewardsWorld) -> None:
    market.pass_day()
    market.beat_all()
    market.pass_day()
    market.posted()
    with market.database.transaction() as session:
        session.execute(update(RewardPost).values(total_wei=RewardPost.total_wei + 1))
    market.beat_all()
    market.pass_day()
    market.pass_day()
    market.posted()
    assert len(market.posts()) == 1


def commit(market: RewardsWorld, node: Wallet) -> None:
    market.chain.send(node, "ProviderStaking", "commit", int(market.now().timestamp()) + 30 * EPOCH_SECONDS)
    market.index()


def test_downtime_in_a_committed_period_is_slashed_once(market: RewardsWorld, api: httpx.Client) -> None:
    commit(market, PROVIDER)
    market.pass_day()
    day = market.day
    market.beat_all(first=ninety_percent(), second=ninety_percent())  # the second one committed to nothing
    market.pass_day()
    market.judge()
    market.judge()
    [penalty] = market.rows(select(DowntimePenalty))
    assert (penalty.provider, penalty.epoch) == (PROVIDER.address, day)
    document = market.storage.get(penalty.evidence_cid, max_bytes=2**16)
    assert canonical_json({"due_minutes": 1440})[1:-1] in document
    assert canonical_json({"up_minutes": 1296})[1:-1] in document
    market.posted()
    market.judge()
    market.finalise()
    [penalty] = market.rows(select(DowntimePenalty))
    assert penalty.amount_wei == STAKE * 5 // 100
    assert market.chain.views.at_risk(PROVIDER.address) == STAKE * 95 // 100
    assert len(market.rows(select(TxIntent).where(TxIntent.kind == "slash"))) == 1
    assert market.node(PROVIDER).status == ProviderStatus.JAILED
    reviews.review(market.database, DEVNET, market.now())
    assert market.node(PROVIDER).reliability_bps == 8_000 * 9 // 10 // 2  # uptime of 90 %, one fresh slash
    [record] = market.rows(
        select(ProviderEpoch).where(ProviderEpoch.provider == PROVIDER.address, ProviderEpoch.epoch == day)
    )
    assert (record.committed_up_minutes, record.committed_minutes) == (1296, 1440)
    [shown] = [row for row in api.get(f"/v1/providers/{PROVIDER.address}/epochs").json() if row["epoch"] == day]
    assert (shown["uptime_bps"], shown["penalty"]["amount_wei"]) == (9_000, str(STAKE * 5 // 100))
    assert api.get(f"/v1/providers/{PROVIDER.address}").json()["reliability_bps"] == 3_600
    with market.database.transaction() as session:
        [earned] = rewards.earnings(session, PROVIDER.address, None, 10)
    assert earned.base_wei == STAKE * 1296 * 2_000 // (10_000 * 365 * 1440)
    market.check()

    market.beat_all(first=0)  # jailed, nothing is expected of it
    market.pass_day()
    market.judge()
    assert len(market.rows(select(DowntimePenalty))) == 1


def test_an_outage_of_the_market_is_held_against_nobody(market: RewardsWorld) -> None:
    commit(market, PROVIDER)
    outage = ALL_MINUTES & ~(((1 << 360) - 1) << 300)
    market.pass_day()
    market.beat_all(first=outage, second=outage, third=outage)  # three of four are silent for six hours
    market.pass_day()
    market.beat_all(first=1, second=1, third=1, fourth=1)  # nearly all of the day
    market.pass_day()
    market.judge()
    assert market.rows(select(DowntimePenalty)) == []
    judged = market.rows(select(JudgedEpoch).order_by(JudgedEpoch.epoch))
    assert [(row.usual_nodes, row.counted_minutes) for row in judged] == [(4, 1080), (4, 1)]
    assert market.rows(select(HeartbeatHour)) == []
    reviews.review(market.database, DEVNET, market.now())
    assert {market.node(node).reliability_bps for node in NODES} == {8_000}


def test_an_unreliable_provider_is_demoted_until_a_benchmark_or_recovery(market: RewardsWorld) -> None:
    address, now = PROVIDER.address, market.now()

    def lose(units: int) -> None:
        with market.database.transaction() as session:
            for _ in range(units):
                providers.note_lost(session, address, now)
        reviews.review(market.database, DEVNET, now)

    lose(7)
    assert market.node(PROVIDER).status == ProviderStatus.ACTIVE
    lose(2)
    found = market.node(PROVIDER)
    assert (found.status, found.reason, found.reliability_bps < 4_000) == (ProviderStatus.DEMOTED, "unreliable", True)
    with market.database.transaction() as session:
        found = providers.require(session, address, lock=True)
        found.forgiven_bps = found.reliability_bps  # as a passed benchmark does
        providers.advance(session, found, providers.ProviderEvent.BENCHMARK_PASSED, reason="benchmark_passed")
        providers.review_stake(session, DEVNET, found)
    lose(0)
    assert market.node(PROVIDER).status == ProviderStatus.ACTIVE
    lose(1)
    assert market.node(PROVIDER).status == ProviderStatus.DEMOTED
    later = now + timedelta(days=60)
    with market.database.transaction() as session:
        providers.note_served(session, address, 0, later)
    reviews.review(market.database, DEVNET, later)
    assert market.node(PROVIDER).status == ProviderStatus.ACTIVE
    assert market.node(PROVIDER).reason == "stake_sufficient"


def test_heartbeats_fill_one_row_an_hour_with_the_least_stake(market: RewardsWorld) -> None:
    at = market.now().replace(minute=5, second=0)
    with market.database.transaction() as session:
        for minutes in (0, 0, 3):
            hour, bit = minute_of((at + timedelta(minutes=minutes)).timestamp())
            records.mark_minute(session, PROVIDER.address, hour, bit)
        session.execute(update(Provider).where(Provider.address == PROVIDER.address).values(status="benchmarked"))
        records.mark_minute(session, PROVIDER.address, hour, 1 << 20)
        records.mark_minute(session, OTHER.address, hour, 1)
    found = {row.provider: (row.minutes, row.stake_wei) for row in market.rows(select(HeartbeatHour))}
    assert found == {PROVIDER.address: (1 << 5 | 1 << 8 | 1 << 20, 0), OTHER.address: (1, STAKE)}
