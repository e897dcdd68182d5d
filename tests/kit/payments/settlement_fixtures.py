"""A market that settles on a real chain: jobs in escrow, units put in as verified, the real sender and indexer.

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

from kit.chain.anvil import AnvilProcess
from kit.chain.deployed_chain import ADMIN, OTHER, PAYER, Chain, Wallet, chain_settings, deploy_contracts, wallet
from market.accounts.models import Account
from market.chain.contracts.codec import Deployment
from market.chain.models import TxIntent
from market.chain.service import final_events
from market.chain.transactions.sender import Sender
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
from worker.chain_handlers import INTENT_HANDLERS, event_handlers
from zoo_compute.audit.settlements import Verification, check_batches, fetch_record
from zoo_compute.chain.settlements import ChainReader
from zoo_compute.content.gateway import GatewayClient
from zoo_protocol.hashing import keccak, sha256, to_hex
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
class SettlementWorld:
    chain: Chain
    database: Database
    storage: Storage
    gateway: str
    settings: Settings
    orders: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with self.database.transaction() as session:
            session.add(Account(address=PAYER.address))

    # --- jobs and their work

    def job(self, rounds: int = 5, budget: int = ZEN) -> str:
        """Start an escrowed job of at most ten units."""
        job_id, arguments = self.chain.order(budget, UNITS)
        order = self.orders[job_id] = arguments[0]
        with self.database.transaction() as session:
            session.add(
                Job(
                    id=job_id,
                    payer=PAYER.address,
                    status=JobStatus.SUBMITTED,
                    request={},
                    spec={},
                    spec_hash=order["specHash"],
                    spec_cid="spec",
                    tier_id=1,
                    nodes=2,
                    rounds=rounds,
                    segments=4,
                    sampling_bps=200,
                    checkpoint_interval=1,
                    redundancy=3,
                    requirements={},
                    units_ordered=UNITS,
                    unit_weight_us=WEIGHT,
                    budget_wei=budget,
                    max_price_wei=order["maxPrice"],
                    wait_until=utc_now() + timedelta(hours=1),
                    nonce=order["nonce"],
                    order_signature="0x",
                    permit={},
                )
            )
        self.chain.send(OTHER, "JobEscrow", "openJob", *arguments)
        self.index()
        self.change(job_id, status=JobStatus.RUNNING, clearing_price_wei=PRICE)
        return job_id

    def change(self, job_id: str, **values: Any) -> None:
        with self.database.transaction() as session:
            job = session.get_one(Job, job_id)
            for name, value in values.items():
                setattr(job, name, value)

    def work(self, job_id: str, round_: int, *workers: Wallet, status: UnitStatus = UnitStatus.VERIFIED) -> list[int]:
        """Work and close one round; return the ids of its units."""
        made = []
        with self.database.transaction() as session:
            for slot, worker in enumerate(workers):
                digest = to_hex(sha256(f"unit {next(_numbers)}".encode()))
                unit = Unit(
                    job_id=job_id,
                    round=round_,
                    slot=slot,
                    provider=worker.address,
                    status=status,
                    start_checkpoint_cid="checkpoint",
                    trace_root=digest,
                    payload_hash=digest,
                    decided_at=utc_now(),
                )
                session.add(unit)
                session.flush()
                made.append(unit.id)
            session.get_one(Job, job_id).current_round = round_ + 1
        return made

    def decide(self, unit_id: int, status: UnitStatus) -> None:
        with self.database.transaction() as session:
            session.get_one(Unit, unit_id).status = status

    def end(self, job_id: str) -> None:
        self.change(job_id, status=JobStatus.SETTLING, reason="completed")

    # --- settling

    def settle(self, *, after: timedelta = timedelta()) -> None:
        """Queue the due settlements."""
        settlement.settle(self.database, self.storage, DEVNET, self.settings, utc_now() + after)

    def send(self) -> None:
        """Send and mine the queued transactions."""
        while self.sender().step():
            pass

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

    def sender(self) -> Sender:
        return self.chain.sender(self.database, INTENT_HANDLERS)

    def index(self) -> None:
        self.chain.anvil.mine(3)
        self.chain.index(self.database, event_handlers(DEVNET, self.chain.deployment))

    def pass_challenge_period(self) -> None:
        self.chain.anvil.rpc("evm_increaseTime", 100_000)
        self.chain.anvil.mine()

    def claim_all(self) -> dict[str, int]:
        got = {}
        for provider in PROVIDERS:
            with self.database.transaction() as session:
                found = claims.claims_of(session, provider.address, claimed=False, after_batch=0, limit=200)
            items = [{"amount": claim.amount_wei, "proof": claim.proof} for _, claim in found]
            before = self.chain.views.balance_of(provider.address)
            if items:
                self.chain.send(provider, "JobEscrow", "claim", provider.address, items)
            got[provider.address] = self.chain.views.balance_of(provider.address) - before
        self.index()
        return got

    # --- what is there

    def read(self, job_id: str) -> Job:
        with self.database.transaction() as session:
            return session.get_one(Job, job_id)

    def units(self, job_id: str) -> list[Unit]:
        with self.database.transaction() as session:
            return list(session.scalars(select(Unit).where(Unit.job_id == job_id).order_by(Unit.round, Unit.slot)))

    def batches(self) -> list[SettlementBatch]:
        with self.database.transaction() as session:
            return list(session.scalars(select(SettlementBatch).order_by(SettlementBatch.id)))

    def intent(self, batch: SettlementBatch) -> TxIntent:
        with self.database.transaction() as session:
            return session.scalars(select(TxIntent).where(TxIntent.key == batch.intent_key)).one()

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
