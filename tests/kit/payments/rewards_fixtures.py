"""A market on a real chain over days: stakes, heartbeats, pay by the epoch."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import select

from kit import records
from kit.chain.deployed_chain import OTHER, PROVIDER, Chain, Wallet, wallet
from kit.chain.on_chain import OnChain
from market.domain.network import DEVNET, EPOCH_SECONDS, ZEN
from market.domain.nodes.uptime import ALL_MINUTES, EPOCH_HOURS, epoch_of
from market.ledger.reconciliation import reconcile
from market.payments.rewards import service as rewards
from market.payments.rewards.models import RewardPost
from market.platform.db.base import from_unix
from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.providers.models import HeartbeatHour, Provider
from market.providers.record import uptime

STAKE = 1_000 * ZEN
NODES = [PROVIDER, OTHER, wallet(6), wallet(7)]
HOUR = (1 << 60) - 1
DAYS_BASE = STAKE * 1440 * 2_000 // (10_000 * 365 * 1440)
"""What a day's full uptime on ``STAKE`` earns at 20 % a year."""


@dataclass
class RewardsWorld(OnChain):
    chain: Chain
    database: Database
    storage: Storage

    def __post_init__(self) -> None:
        self.day = epoch_of(self.now().timestamp()) + 1
        for node in (PROVIDER, OTHER):
            self.chain.stake(node, STAKE)
        self.register(NODES)
        self.index()

    def register(self, nodes: Sequence[Wallet]) -> None:
        created = self.now() - timedelta(days=1)
        for node in nodes:
            provider = records.provider(node.address, environment_class="0x" + "aa" * 32, created_at=created)
            self.add(records.account(node.address), provider)

    def now(self) -> datetime:
        return from_unix(self.chain.client().head().timestamp)

    def pass_day(self) -> None:
        """End the day, evaluate it and let yesterday's epoch take effect."""
        end, day_later = (self.day + 1) * EPOCH_SECONDS + 180, int(self.now().timestamp()) + EPOCH_SECONDS
        self.chain.anvil.rpc("evm_setNextBlockTimestamp", max(end, day_later))
        self.chain.anvil.mine()
        self.day += 1

    def beat(self, node: Wallet, seen: int = ALL_MINUTES, stake: int = STAKE) -> None:
        with self.database.transaction() as session:
            for hour in range(EPOCH_HOURS):
                if minutes := seen >> 60 * hour & HOUR:
                    number = self.day * EPOCH_HOURS + hour
                    session.add(HeartbeatHour(hour=number, provider=node.address, minutes=minutes, stake_wei=stake))

    def beat_all(self, **seen: int) -> None:
        """Send heartbeats of all nodes all day; those named only in their minutes."""
        for name, node in zip(("first", "second", "third", "fourth"), NODES, strict=True):
            self.beat(node, seen.get(name, ALL_MINUTES), STAKE if node in (PROVIDER, OTHER) else 1)

    def commit(self, node: Wallet) -> None:
        self.chain.send(node, "ProviderStaking", "commit", int(self.now().timestamp()) + 30 * EPOCH_SECONDS)
        self.index()

    def judge(self) -> None:
        uptime.evaluate_epochs(self.database, self.storage, DEVNET, self.now())

    def post(self) -> None:
        rewards.post(self.database, DEVNET, self.chain.views, self.now())

    def posted(self) -> None:
        self.judge()
        for _ in range(2):
            self.post()
            self.finalise()

    def earn_day(self) -> None:
        """Let all nodes be up for a day, and post what they earned."""
        self.beat_all()
        self.pass_day()
        self.posted()

    def posts(self) -> list[RewardPost]:
        return self.all(select(RewardPost).order_by(RewardPost.id))

    def node(self, node: Wallet) -> Provider:
        return self.get(Provider, node.address)

    def claim(self, node: Wallet) -> int:
        leaf, _, _ = self.call(rewards.claimable, node.address, self.now())
        assert leaf is not None
        before = self.chain.views.balance_of(node.address)
        self.chain.send(node, "Rewards", "claim", node.address, leaf.cumulative_wei, leaf.proof)
        return self.chain.views.balance_of(node.address) - before

    def check(self) -> None:
        self.index()
        found = reconcile(self.database, self.chain.client(), self.chain.deployment)
        assert found.difference_wei == 0, found.as_json()


def ninety_percent() -> int:
    """Return the minutes of a day without 144 in its middle."""
    return ALL_MINUTES & ~(((1 << 144) - 1) << 600)
