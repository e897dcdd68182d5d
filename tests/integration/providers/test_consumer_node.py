"""A home node of the entry tier: registration, proof, auction, unit and pay."""

from datetime import timedelta
from typing import Any

import httpx
from eth_account import Account
from kit.api import provider_calls as calls
from kit.api.clients import accepted, sign_in
from kit.chain.deployed_chain import OTHER
from kit.disputes.dispute_fixtures import DisputeWorld, world_of_disputes  # noqa: F401  (fixtures)
from kit.jobs.auction_rounds import clear_when_due
from kit.payments.settlement_helpers import deposit, settle_and_claim
from kit.verification.live_fixtures import HONEST_ACCOUNT, TRAINING
from sqlalchemy import update

from market.domain.money import unit_price
from market.domain.network import DEVNET, ZEN
from market.jobs.models import Job
from market.platform.db.base import utc_now
from market.platform.http.services import Services
from market.training.leases.schemas import LeaseKind
from zoo_protocol.payments.receipt import net_unit_price

IRON = DEVNET.tier("iron")
HOME = {"gpu_model": "RTX 4080", "gpu_count": 1, "gpu_memory_gb": 17.1, "ram_gb": 32, "network_gbps": 0}
MONTH = 30 * 86_400.0


def job(live: DisputeWorld, tier: int = IRON.id, **requirements: object) -> str:
    document = {**live.spec.to_dict(), "training_config": TRAINING | {"rounds": 1, "seed": 2_700}}
    terms: dict[str, Any] = {
        "tier": tier,
        "sampling_bps": 10_000,
        "wait_seconds": MONTH,
        "max_price": 3 * ZEN,
        "document": document,
    }
    found: str = live.job(nodes=1, requirements=requirements, **terms)
    return found


def test_consumer_node_is_paid_for_unit(live: DisputeWorld, api: httpx.Client, services: Services) -> None:
    address = HONEST_ACCOUNT.address
    live.deployed.anvil.rpc("anvil_setBalance", address, hex(ZEN))
    caller = sign_in(api, Account.from_key(HONEST_ACCOUNT.key))
    node = live.registered_node(HONEST_ACCOUNT)
    registration = {"hardware": HOME, "environment_class": node.executor.environment_class, "region": "eu"}
    accepted(calls.register(caller, **registration), 201)

    calls.pass_benchmark(caller, IRON.name)
    found = api.get(f"/v1/providers/{address}").json()
    assert (found["status"], found["tier"], found["reliability_bps"]) == ("benchmarked", "iron", 8_000)
    assert found["measured_mflops"] > IRON.benchmark.min_mflops / 50  # a laptop under load

    live.deployed.send(OTHER, "ZenToken", "transfer", address, IRON.minimum_stake_wei)
    for amount, status in ((IRON.minimum_stake_wei - 1, "benchmarked"), (1, "active")):
        live.deployed.stake(HONEST_ACCOUNT, amount)
        live.step()
        assert calls.status_of(api, address) == status

    ask = calls.ask_of(caller, tier=IRON.id, gpus=IRON.gpus, minPrice=74 * ZEN // 100)  # 0.78 with the fee
    assert accepted(calls.place_ask(caller, services.domain, ask), 201)["tier"] == "iron"
    assert calls.beat(caller, services.domain)["tier"] == "iron"

    too_fast, other_tier, job_id = job(live, min_mflops=10**12), job(live, tier=1), job(live)
    earlier = utc_now() - timedelta(minutes=1)  # it would be served first
    live.execute(update(Job).where(Job.id == too_fast).values(funded_at=earlier))
    deposit(live, job_id)
    assert clear_when_due(live) == 1
    assert [live.read(one).status for one in (too_fast, other_tier, job_id)] == ["matching", "matching", "running"]
    assert live.read(job_id).clearing_price_wei == IRON.reserve_price_wei == 78 * ZEN // 100
    live.dispatch(job_id)
    live.work_off(node, LeaseKind.TRAIN)
    verifiers = [live.verifier_node() for _ in range(2)]
    live.decide(job_id, [node], verifiers)
    assert [(unit.status, unit.provider) for unit in live.units(job_id)] == [("verified", address)]

    payday = settle_and_claim(live, [job_id], [node])
    weight = live.read(job_id).unit_weight_us
    assert payday.claimed == {address: net_unit_price(IRON.reserve_price_wei, weight, DEVNET.fee_bps)}
    assert payday.refunded == payday.deposited - unit_price(IRON.reserve_price_wei, weight)
    assert live.deployed.views.stake_of(address) == IRON.minimum_stake_wei
