"""A market that settles on a real chain: escrow, verified units, sender, indexer.

Nodes and verifiers take no part. The tests check which units the contract pays, how often, and the ledger.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from kit import records
from kit.chain.anvil import AnvilProcess
from kit.chain.deployed_chain import ADMIN, OTHER, PAYER, Chain, Wallet, chain_settings, deploy_contracts, wallet
from kit.chain.on_chain import OnChain
from market.chain.contracts.codec import Deployment
from market.chain.models import TxIntent
from market.chain.service import final_events
from market.domain.lifecycle import JobStatus, UnitStatus
from market.domain.network import DEVNET, ZEN
from market.jobs.models import Job
from market.ledger.reconciliation import reconcile
from market.payments.settlement import claims
from market.payments.settlement import service as settlement
from market.payments.settlement.models import SettlementBatch
from market.platform.db.base import utc_now
from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.settings import Settings
from market.training.units.models import Unit
from zoo_compute.audit.settlements import Verification, check_batches, fetch_record
from zoo_compute.chain.settlements import ChainReader
from zoo_compute.content.gateway import GatewayClient
from zoo_protocol.hashing import keccak, sha256, to_hex
from zoo_protocol.messages import JobOrder
from zoo_protocol.payments.job_record import JobRecord
from zoo_protocol.payments.receipt import JobSettlement, net_unit_price

PRICE, WEIGHT, UNITS = 36 * ZEN // 10, 1_000_000, 10
UNIT_PAY = net_unit_price(PRICE, WEIGHT, 500)
PROVIDERS = [wallet(index) for index in range(5, 9)]
_numbers = count()


@pytest.fixture(name="slow_deployment", scope="module")
def deployment_with_a_day(anvil: AnvilProcess) -> Deployment:
    """Contracts with a challenge period of a day."""
    deployment = deploy_contracts(anvil, replace(DEVNET, challenge_seconds=86_400))
    anvil.mine(3)
    return deployment


@pytest.fixture(name="market")
def settling_market(
    anvil: AnvilProcess,
    slow_deployment: Deployment,
    database: Database,
    settings: Settings,
    storage: Storage,
    ipfs: dict[str, str],
    tmp_path: Path,
) -> Iterator["SettlementWorld"]:
    mark = anvil.snapshot()
    chain = Chain(anvil, slow_deployment, chain_settings(anvil, slow_deployment, tmp_path))
    yield SettlementWorld(chain, database, storage, ipfs["gateway"], settings)
    anvil.revert(mark)


@dataclass
class SettlementWorld(OnChain):
    chain: Chain
    database: Database
    storage: Storage
    gateway: str
    settings: Settings
    orders: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.add(records.account(PAYER.address))

    def job(self, rounds: int = 5, budget: int = ZEN) -> str:
        """Start an escrowed job of at most ten units."""
        job_id, arguments = self.chain.order(budget, UNITS)
        order = JobOrder(**arguments[0])
        self.orders[job_id] = arguments[0]
        self.add(records.job(order, nodes=2, rounds=rounds, wait_until=utc_now() + timedelta(hours=1)))
        self.chain.send(OTHER, "JobEscrow", "openJob", *arguments)
        self.index()
        self.change(Job, job_id, status=JobStatus.RUNNING, clearing_price_wei=PRICE)
        return job_id

    def work(self, job_id: str, round_: int, *workers: Wallet, status: UnitStatus = UnitStatus.VERIFIED) -> list[int]:
        """Work and close one round; return the ids of its units."""
        made = []
        for slot, worker in enumerate(workers):
            digest = to_hex(sha256(f"unit {next(_numbers)}".encode()))
            done = {"status": status, "trace_root": digest, "payload_hash": digest, "decided_at": utc_now()}
            made.append(records.unit(job_id, round_, slot, worker.address, **done))
        self.add(*made)
        self.change(Job, job_id, current_round=round_ + 1)
        return [unit.id for unit in made]

    def decide(self, unit_id: int, status: UnitStatus) -> None:
        self.change(Unit, unit_id, status=status)

    def end(self, job_id: str) -> None:
        self.change(Job, job_id, status=JobStatus.SETTLING, reason="completed")

    def ended_job(self, *workers: Wallet) -> str:
        """Return a job that ended after one round of these workers."""
        job_id = self.job()
        self.work(job_id, 0, *workers)
        self.end(job_id)
        return job_id

    def settle(self, *, after: timedelta = timedelta()) -> None:
        """Queue the due settlements."""
        settlement.settle(self.database, self.storage, DEVNET, self.settings, utc_now() + after)

    def finalise(self) -> None:
        """Make mined transactions final and process their events."""
        self.chain.anvil.mine(3)
        self.send()
        self.index()

    def settled(self, *, after: timedelta = timedelta()) -> None:
        self.settle(after=after)
        self.send()
        self.finalise()

    def veto(self, batch: SettlementBatch) -> None:
        number = batch.batch_id if batch.batch_id is not None else self.batch_count()
        self.chain.send(ADMIN, "JobEscrow", "veto", number, *self.intent(batch).arguments)

    def pass_challenge_period(self) -> None:
        self.chain.anvil.rpc("evm_increaseTime", 100_000)
        self.chain.anvil.mine()

    def claim_all(self) -> dict[str, int]:
        got = {}
        for provider in PROVIDERS:
            found = self.call(claims.claims_of, provider.address, claimed=False, after_batch=0, limit=200)
            items = [{"amount": claim.amount_wei, "proof": claim.proof} for _, claim in found]
            before = self.chain.views.balance_of(provider.address)
            if items:
                self.chain.send(provider, "JobEscrow", "claim", provider.address, items)
            got[provider.address] = self.chain.views.balance_of(provider.address) - before
        self.index()
        return got

    def read(self, job_id: str) -> Job:
        return self.get(Job, job_id)

    def units(self, job_id: str) -> list[Unit]:
        return self.all(select(Unit).where(Unit.job_id == job_id).order_by(Unit.round, Unit.slot))

    def batches(self) -> list[SettlementBatch]:
        return self.all(select(SettlementBatch).order_by(SettlementBatch.id))

    def intent(self, batch: SettlementBatch) -> TxIntent:
        return self.one(select(TxIntent).where(TxIntent.key == batch.intent_key))

    def lines(self) -> list[list[Mapping[str, Any]]]:
        return [self.intent(batch).arguments[2] for batch in self.batches()]  # type: ignore[misc]

    def batch_count(self) -> int:
        escrow = self.chain.deployment.address("JobEscrow")
        return int(
            self.chain.anvil.rpc(
                "eth_call", {"to": escrow, "data": "0x" + keccak(b"batchCount()")[:4].hex()}, "latest"
            ),
            16,
        )

    def check(self, *job_ids: str) -> None:
        """Check every job's money by chain, database and published records."""
        found = reconcile(self.database, self.chain.client(), self.chain.deployment)
        assert found.difference_wei == 0, found.as_json()
        reader = ChainReader(self.chain.anvil.url, self.chain.deployment.contracts)
        for job_id in job_ids:
            job, verified = self.read(job_id), [u for u in self.units(job_id) if u.status == UnitStatus.VERIFIED]
            with self.database.transaction() as session:
                events = [event for event in final_events(session, job_id) if event.contract == "JobEscrow"]
            total = JobSettlement.from_events((event.name, event.args, event.tx_hash) for event in events)
            assert total == reader.settlement(job_id)
            assert (job.status, job.reason) == (JobStatus.SETTLED, "completed")
            assert (job.paid_wei, job.fee_wei, job.refund_wei) == (total.paid, total.fee, total.refund)
            assert total.paid + total.fee + total.refund == job.budget_wei
            assert total.paid == len(verified) * UNIT_PAY
            assert sum(part.units for part in total.parts) == len(verified)
            result = Verification()
            with GatewayClient([self.gateway]) as gateway:
                record = JobRecord.from_bytes(fetch_record(gateway, total.parts[-1].record))
                check_batches(result, reader, gateway, record, total)
            assert result.findings == []


def hours(number: float) -> timedelta:
    return timedelta(hours=number)
