"""Jobs whose payers withdraw the escrow early: work stops, and the jobs end."""

import pytest
from kit.chain.deployed_chain import OTHER, PAYER, Chain
from kit.payments.settlement_fixtures import PROVIDERS, UNIT_PAY, SettlementWorld, hours

from market.domain.lifecycle import JobStatus, UnitStatus
from market.domain.network import DEVNET
from market.jobs.models import Job
from market.ledger.reconciliation import reconcile
from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.settings import Settings

FIRST, SECOND = PROVIDERS[:2]


@pytest.fixture
def market(
    chain: Chain, database: Database, settings: Settings, storage: Storage, ipfs: dict[str, str]
) -> SettlementWorld:
    return SettlementWorld(chain, database, storage, ipfs["gateway"], settings)


def _call_back(market: SettlementWorld, *jobs: str) -> None:
    for job in jobs:
        market.chain.send(PAYER, "JobEscrow", "cancel", job)
    market.chain.anvil.rpc("evm_increaseTime", DEVNET.cancel_delay_seconds + 1)
    market.chain.anvil.mine()
    for job in jobs:
        market.chain.send(OTHER, "JobEscrow", "refund", job)


def test_job_refunded_before_last_decision_ends(market: SettlementWorld) -> None:
    job = market.job(rounds=1)
    disputed, _ = market.work(job, 0, FIRST, SECOND)
    market.decide(disputed, UnitStatus.DISPUTED)
    market.change(Job, job, status=JobStatus.VERIFYING)
    market.settled(after=hours(2))
    assert market.read(job).paid_wei == UNIT_PAY
    _call_back(market, job)
    market.index()
    market.decide(disputed, UnitStatus.REJECTED)
    market.end(job)
    market.settled(after=hours(4))
    ended = market.read(job)
    assert (ended.status, ended.paid_wei, ended.settlement_tx is None) == (JobStatus.SETTLED, UNIT_PAY, False)
    assert (ended.paid_wei or 0) + (ended.fee_wei or 0) + (ended.refund_wei or 0) == ended.budget_wei
    assert reconcile(market.database, market.chain.client(), market.chain.deployment).difference_wei == 0


def test_refunded_job_gets_no_more_work(market: SettlementWorld) -> None:
    job = market.job(rounds=3)
    market.chain.anvil.rpc("evm_increaseTime", 3_600 + DEVNET.refund_delay_seconds + 1)
    market.chain.anvil.mine()
    market.chain.send(OTHER, "JobEscrow", "refund", job)
    market.index()
    assert (market.read(job).status, market.read(job).reason) == (JobStatus.CANCELLED, "escrow_refunded")
    market.settled(after=hours(2))
    ended = market.read(job)
    assert (ended.status, ended.refund_wei) == (JobStatus.SETTLED, ended.budget_wei)
