"""Rewards posted and claimed on a real chain, to the wei, through vetoes and crashes."""

from typing import Any

import httpx
import pytest
from eth_account import Account as Wallets
from kit.api.clients import sign_in
from kit.chain.deployed_chain import ADMIN, OTHER, PAYER, PROVIDER, wallet
from kit.jobs.jobs_fixtures import at_once
from kit.payments.rewards_fixtures import DAYS_BASE, NODES, STAKE, RewardsWorld, ninety_percent
from sqlalchemy import select, update

from market.chain.models import TxIntent
from market.domain.network import DEVNET, EPOCH_SECONDS, ZEN
from market.governance import service as governance
from market.ledger.service import balances
from market.payments.rewards import service as rewards
from market.payments.rewards.models import RewardPost
from market.platform.db.base import from_unix
from market.providers.record import reliability as providers
from zoo_compute.base.models import Network, Rewards
from zoo_compute.chain.wallet import Wallet as ClientWallet
from zoo_compute.client.earnings import claim_rewards


def test_two_epochs_are_posted_and_claimed_exactly(
    market: RewardsWorld, api: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    market.pass_day()
    first = market.day
    market.beat_all(second=ninety_percent())
    noon = from_unix(first * EPOCH_SECONDS + EPOCH_SECONDS // 2)
    market.call(providers.record_served_bytes, wallet(6).address, 3 * 2**30, noon)
    market.call(providers.record_replay, wallet(7).address, ZEN + 1, noon)
    market.pass_day()
    market.posted()
    [post] = market.posts()
    assert (post.first_epoch, post.last_epoch, post.number) == (first, first, 1)
    assert (post.base_wei, post.bandwidth_wei, post.verifier_wei) == (
        DAYS_BASE + STAKE * 1296 * 2_000 // (10_000 * 365 * 1440),
        3 * DEVNET.bandwidth_wei_per_gib,
        ZEN * 5 // 4 + 1,  # of what the segment costs its payer, floored
    )
    market.check()
    [epoch] = market.call(governance.payouts_under_challenge, market.now())
    total = post.base_wei + post.bandwidth_wei + post.verifier_wei
    assert (epoch.kind, epoch.number, epoch.agrees, epoch.net_wei) == ("epoch", 1, True, total)
    assert sum(payee.amount_wei for payee in epoch.payees) == total
    market.post()
    assert len(market.posts()) == 1  # nothing more is due

    market.earn_day()
    second = market.posts()[1]
    assert (second.first_epoch, second.base_wei, second.bandwidth_wei) == (first + 1, 2 * DAYS_BASE, 0)
    # The first is in force until the second one's delay is over.
    in_force, waiting, _ = market.call(rewards.claimable, PROVIDER.address, market.now())
    assert in_force is not None
    assert waiting is not None
    assert (in_force.cumulative_wei, waiting.cumulative_wei) == (DAYS_BASE, 2 * DAYS_BASE)
    assert market.claim(PROVIDER) == DAYS_BASE
    market.check()

    market.pass_day()
    monkeypatch.setattr("market.payments.rewards.router.utc_now", market.now)
    caller = sign_in(api, Wallets.from_key(PROVIDER.key))
    shown = Rewards.model_validate(caller.get("/v1/rewards").json())
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
    taken, tx = claim_rewards(shown, network, ClientWallet(PROVIDER.key), PAYER.address)
    assert taken is not None
    assert tx is not None
    assert market.chain.views.balance_of(PAYER.address) - before == taken.amount_wei == DAYS_BASE
    repeated = claim_rewards(shown, network, ClientWallet(PROVIDER.key), None)
    assert repeated == (None, None)  # the market has not seen it yet
    earned = [market.claim(node) for node in NODES[1:]]
    assert DAYS_BASE * 2 + sum(earned) == second.total_wei
    market.check()
    again = Rewards.model_validate(caller.get("/v1/rewards").json())
    assert (again.claimable, again.claimed_wei) == (None, 2 * DAYS_BASE)
    assert market.chain.views.rewards().total_wei == second.total_wei


def test_crash_during_epoch_build_leaves_nothing_and_repeats(
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
    assert len(market.all(select(TxIntent).where(TxIntent.kind == "post_rewards"))) == 1
    market.check()


@pytest.mark.long
def test_vetoed_epoch_is_paid_with_next_one(
    market: RewardsWorld, api: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("market.api.health.utc_now", market.now)

    def counted() -> list[str]:
        return [line for line in api.get("/metrics").text.splitlines() if line.startswith("zoo_reward_")]

    assert counted() == [
        'zoo_reward_posts_void{reason="rewards_vetoed"} 0.0',
        'zoo_reward_posts_void{reason="rewards_refused"} 0.0',
        "zoo_reward_epochs_unposted 0.0",
    ]
    market.pass_day()
    for _ in range(2):
        market.earn_day()
    market.chain.send(ADMIN, "Rewards", "veto")
    market.finalise()
    [stands, vetoed] = market.posts()
    assert (stands.void_reason, vetoed.void_reason) == (None, rewards.VETOED)
    assert counted()[0] == 'zoo_reward_posts_void{reason="rewards_vetoed"} 1.0'
    assert counted()[2] == "zoo_reward_epochs_unposted 1.0"
    held = market.call(balances, "rewards")
    assert held.get("rewards:pending", 0) == 0
    assert held["rewards:posted"] == stands.total_wei
    market.check()
    market.posted()
    assert len(market.posts()) == 2  # there is a day to find out what was wrong

    market.earn_day()
    post = market.posts()[2]
    assert counted()[2] == "zoo_reward_epochs_unposted 0.0"
    two_days = STAKE * 2 * 1440 * 2_000 // (10_000 * 365 * 1440)
    assert (post.first_epoch, post.last_epoch) == (vetoed.first_epoch, vetoed.first_epoch + 1)
    assert (post.base_wei, post.total_wei) == (2 * two_days, 2 * (DAYS_BASE + two_days))
    market.pass_day()
    assert (market.claim(PROVIDER), market.claim(OTHER)) == (DAYS_BASE + two_days, DAYS_BASE + two_days)
    market.check()


def test_foreign_root_on_chain_stops_posting(market: RewardsWorld) -> None:
    market.pass_day()
    market.earn_day()
    market.execute(update(RewardPost).values(total_wei=RewardPost.total_wei + 1))
    market.beat_all()
    market.pass_day()
    market.pass_day()
    market.posted()
    assert len(market.posts()) == 1
