"""A provider's money from the first stake to the last wei back, on a real chain."""

from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from kit.api.clients import Cli
from kit.chain.deployed_chain import FUNDS, PROVIDER
from kit.chain.settling import batch_root, claim_proof, open_job, pass_challenge_period, pay, settle_job
from kit.jobs.jobs_fixtures import World
from kit.payments.rewards_fixtures import DAYS_BASE, STAKE, RewardsWorld
from sqlalchemy import delete

from market.domain.network import DEVNET, ZEN
from market.payments.settlement.models import SettlementBatch, SettlementClaim
from market.providers import service as providers
from market.training.leases import service as leases
from market.training.leases.models import Lease
from zoo_compute.base.errors import ExitCode, ZooError
from zoo_compute.base.models import Network
from zoo_compute.chain.wallet import Wallet
from zoo_compute.node.config import NodeConfig
from zoo_compute.node.lifecycle import NodeLifecycle


def settle(market: RewardsWorld) -> None:
    """Settle two units of the provider on chain, with the market's record of its claim."""
    job_id = open_job(market.chain)
    batch = SettlementBatch(root=batch_root(job_id, 2))
    market.add(batch)
    market.add(
        SettlementClaim(
            settlement_id=batch.id,
            provider=PROVIDER.address,
            job_ids=[job_id],
            amount_wei=pay(2),
            proof=claim_proof(job_id, 2),
        )
    )
    settle_job(market.chain, job_id)
    market.index()


def pass_seconds(market: RewardsWorld, seconds: int) -> None:
    market.chain.anvil.rpc("evm_increaseTime", seconds)
    market.index()


def test_provider_gets_every_wei_back(provider: Cli, market: RewardsWorld) -> None:
    views = market.chain.views
    assert views.balance_of(PROVIDER.address) == FUNDS - STAKE
    settle(market)
    assert provider.json("provider", "earnings")["pay_pending_wei"] == str(pay(2))
    pass_challenge_period(market.chain)
    found = provider.json("provider", "earnings")
    assert (found["pay_claimable_wei"], found["pay_pending_wei"]) == (str(pay(2)), "0")
    assert (found["stake_wei"], found["balance_wei"]) == (str(STAKE), str(FUNDS - STAKE))
    provider("node", "claim")
    market.pass_day()
    market.earn_day()
    market.pass_day()
    provider("node", "rewards", "--claim")
    market.index()
    found = provider.json("provider", "earnings")
    assert (found["pay_claimed_wei"], found["rewards_claimed_wei"]) == (str(pay(2)), str(DAYS_BASE))
    assert "pay claimed" in provider("provider", "earnings")

    assert "nothing-unbonding" in provider("provider", "withdraw", code=ExitCode.FAILED)
    part = provider.json("provider", "unstake", 400)
    assert (part["stake_wei"], part["unbonding_wei"]) == (str(STAKE - 400 * ZEN), str(400 * ZEN))
    rest = provider.json("provider", "unstake", "all")
    assert (rest["amount_wei"], rest["unbonding_wei"]) == (str(STAKE - 400 * ZEN), str(STAKE))
    until = datetime.fromisoformat(rest["withdraw_from"])
    assert 0 <= (until - market.now()).total_seconds() <= DEVNET.unbonding_seconds
    refused = provider("provider", "withdraw", code=ExitCode.FAILED)
    assert "still-unbonding" in refused
    assert rest["withdraw_from"] in refused
    pass_seconds(market, DEVNET.unbonding_seconds + 1)
    assert provider.json("provider", "withdraw")["amount_wei"] == str(STAKE)
    assert views.at_risk(PROVIDER.address) == 0
    assert views.balance_of(PROVIDER.address) == FUNDS + pay(2) + DAYS_BASE
    assert "stake-too-low" in provider("provider", "unstake", "all", code=ExitCode.FAILED)
    market.check()


def test_stake_of_working_node_stays(provider: Cli, market: RewardsWorld, world: World) -> None:
    job_id = world.job()
    market.call(leases.create_lease, kind="train", holder=PROVIDER.address, job_id=job_id, task={}, seconds=60)
    refused = provider("provider", "unstake", "all", code=ExitCode.FAILED)
    assert "work-open" in refused
    assert job_id in refused
    market.execute(delete(Lease))
    assert provider.json("provider", "unstake", 1)["unbonding_wei"] == str(ZEN)
    market.index()

    pass_seconds(market, DEVNET.unbonding_seconds + 1)
    market.call(providers.heartbeat, PROVIDER.address)
    assert "node-running" in provider("provider", "withdraw", code=ExitCode.FAILED)
    market.call(providers.record_shutdown, PROVIDER.address)
    assert provider.json("provider", "withdraw")["amount_wei"] == str(ZEN)


def test_node_does_not_replace_unbonding_stake(
    provider: Cli, market: RewardsWorld, api: httpx.Client, tmp_path: Path
) -> None:
    network = Network.model_validate(api.get("/v1/network").json())
    known: Any = SimpleNamespace(network=lambda: network)
    idle: Any = SimpleNamespace(last_class="")
    config = NodeConfig(api_url="", role="provider", state_dir=tmp_path, name="node")
    provider.json("provider", "unstake", "all")
    with pytest.raises(ZooError) as refused:
        NodeLifecycle(config, known, Wallet(PROVIDER.key), idle).advance("benchmarked")
    assert refused.value.code == "stake-unbonding"
    assert market.chain.views.at_risk(PROVIDER.address) == STAKE
