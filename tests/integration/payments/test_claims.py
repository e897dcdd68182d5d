"""Providers' claims as the market lists them; the collection of fees; a voided batch."""

import time
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from kit.api.clients import refusal, sign_in
from kit.jobs.jobs_fixtures import World
from kit.payments.cancelled_jobs import cancelled_job, decide, final_event, settle  # noqa: F401  (a fixture)
from sqlalchemy import select

from market.chain.contracts.codec import ChainEvent
from market.chain.models import TxIntent
from market.domain.lifecycle import IntentStatus, JobStatus
from market.payments.settlement import claims
from market.payments.settlement import service as settlement
from market.payments.settlement.models import SettlementBatch, SettlementClaim

BATCH, CLAIM_TX = 7, "0x" + "c1" * 32


def event(name: str, **args: object) -> ChainEvent:
    return ChainEvent("JobEscrow", name, args, CLAIM_TX, 9, "0x" + "cd" * 32, 0, int(time.time()))


@pytest.fixture
def posted(world: World, cancelled: str) -> str:
    decide(world, cancelled)
    settle(world)
    settled = final_event(world, cancelled)
    root = batch(world).root
    opened_at = int(time.time()) - 60
    final = event("BatchPosted", batchId=BATCH, root=root, claimableAt=opened_at)
    world.call(claims.on_batch_posted, final)
    world.call(settlement.on_job_settled, settled)
    return cancelled


def batch(world: World) -> SettlementBatch:
    return world.one(select(SettlementBatch))


def listed(world: World, provider: str, *, claimed: bool = False) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = world.call(claims.claims_of, provider, claimed=claimed, after_batch=0, limit=10)
    return found


def collections(world: World) -> list[TxIntent]:
    return world.all(select(TxIntent).where(TxIntent.kind == "collect_fees").order_by(TxIntent.id))


def test_claims_are_listed_after_batch_is_final(world: World, cancelled: str) -> None:
    decide(world, cancelled)
    settle(world)
    providers = world.all(select(SettlementClaim.provider))
    assert len(providers) == 3
    assert [listed(world, provider) for provider in providers] == [[], [], []]


def test_provider_sees_own_claim_until_claimed(world: World, posted: str) -> None:
    verified = [unit.provider for unit in world.units(posted) if unit.status == "verified"]
    for provider in verified:
        [(batch, claim)] = listed(world, provider)
        assert (batch.batch_id, claim.provider, claim.amount_wei > 0) == (BATCH, provider, True)
    taken = event("Claimed", batchId=BATCH, provider=verified[0], to=verified[0], amount=1)
    world.call(claims.on_claimed, taken)
    assert listed(world, verified[0]) == []
    assert [claim.claim_tx for _, claim in listed(world, verified[0], claimed=True)] == [CLAIM_TX]
    assert len(listed(world, verified[1])) == 1


def test_api_lists_caller_claims_by_page(world: World, posted: str, api: httpx.Client) -> None:
    refusal(api.get("/v1/claims"), 401, "not-authenticated")
    provider = next(unit.provider for unit in world.units(posted) if unit.status == "verified")
    headers = sign_in(api, world.wallets[provider]).headers
    page = api.get("/v1/claims", params={"limit": 1}, headers=headers).json()
    [(_, claim)] = listed(world, provider)
    [item] = page["items"]
    assert (item["batch_id"], item["job_ids"]) == (BATCH, [posted])
    assert (item["amount_wei"], item["proof"], item["claim_tx"]) == (str(claim.amount_wei), claim.proof, None)
    after = api.get("/v1/claims", params={"limit": 1, "after": page["next_after"]}, headers=headers).json()
    assert after == {"items": [], "next_after": None}
    assert api.get("/v1/claims", params={"claimed": "true"}, headers=headers).json()["items"] == []


def test_fees_are_collected_once_by_chain_time(world: World, posted: str) -> None:
    claims.collect_fees(world.database, lambda: int(time.time()) - 3600)
    assert collections(world) == []
    for _ in range(2):
        claims.collect_fees(world.database, lambda: int(time.time()))
    [intent] = collections(world)
    assert intent.arguments == [[batch(world).root]]


def test_refused_collection_is_retried(world: World, posted: str) -> None:
    now = int(time.time())
    claims.collect_fees(world.database, lambda: now)
    [intent] = collections(world)
    intent.status = IntentStatus.REVERTED
    world.call(claims.on_fees_intent, intent)
    claims.collect_fees(world.database, lambda: now + 1)
    assert len(collections(world)) == 2


def test_veto_reopens_settlement_and_voids_claims(world: World, posted: str, api: httpx.Client) -> None:
    before = world.read(posted)
    assert before.status == JobStatus.SETTLED
    taken = {"net": before.paid_wei, "fee": before.fee_wei, "refunded": False}
    world.call(settlement.on_batch_vetoed, event("BatchVetoed", batchId=BATCH))
    reverted = event("SettlementReverted", jobId=posted, batchId=BATCH, **taken)
    world.call(settlement.on_settlement_reverted, reverted)
    job = world.read(posted)
    assert (job.status, job.reason) == (JobStatus.SETTLING, "cancelled_by_payer")
    assert (job.paid_wei, job.fee_wei, job.refund_wei) == (0, 0, before.refund_wei)
    assert 'zoo_settlements_void{reason="settlement_vetoed"} 1.0' in api.get("/metrics").text
    assert all(listed(world, unit.provider) == [] for unit in world.units(posted))
    claims.collect_fees(world.database, lambda: int(time.time()))
    assert collections(world) == []
    rest = job.escrowed_wei - (job.refund_wei or 0)
    refunded = event("JobRefunded", jobId=posted, amount=rest)
    world.call(settlement.on_job_refunded, refunded)
    assert (world.read(posted).status, world.read(posted).refund_wei) == (JobStatus.SETTLED, job.escrowed_wei)


def test_batch_of_another_market_changes_nothing(world: World) -> None:
    foreign = event("BatchPosted", batchId=BATCH, root="0x" + "00" * 32, claimableAt=int(datetime.now(UTC).timestamp()))
    world.call(claims.on_batch_posted, foreign)
    world.call(settlement.on_batch_vetoed, event("BatchVetoed", batchId=BATCH))
    assert world.all(select(SettlementBatch)) == []
