"""A small world for tests of jobs: real database and storage, a tiny model, nodes that answer without training.

What a node delivers here is a well-formed payload of random numbers under a real commitment. The market accepts it,
as it must: only a replay finds the difference. The chain is a fake that knows balances and permit nonces.
"""

import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from eth_account import Account as Wallets
from eth_account.signers.local import LocalAccount
from sqlalchemy import select, update

from kit.jobs.unit_results import Work
from market.accounts.models import Account
from market.chain.contracts.codec import ChainEvent
from market.chain.views import Funds
from market.domain.lifecycle import ProviderStatus
from market.jobs.models import Job
from market.orders import submission
from market.platform.db.base import utc_now
from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.providers.models import AskRow, Provider, Stake
from market.settings import Settings
from market.training.aggregation import service as aggregation
from market.training.deliveries import checks
from market.training.deliveries import service as deliveries
from market.training.leases import service as leases
from market.training.leases.models import Lease
from market.training.leases.schemas import CompletePin, CompletePublish, LeaseKind, LeaseView
from market.training.matching import book
from market.training.rounds import service as rounds_service
from market.training.units.models import Unit
from training_gym.data.dataset import DatasetManifest, describe_split
from training_gym.spec.config import TrainingSpec
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.hashing import canonical_json, from_hex, sha256, to_hex
from zoo_protocol.messages import JobOrder, struct_hash

ZEN = 10**18
ENVIRONMENT = to_hex(sha256(b"environment"))
TEXT = b"the quick brown fox jumps over the lazy dog " * 40
SPEC = {
    "model_config": {"hidden_size": 8, "num_layers": 1, "num_heads": 1, "sequence_length": 8},
    "training_config": {"rounds": 2, "inner_steps": 4, "segment_steps": 2, "warmup_steps": 1, "batch_size": 2},
}


@dataclass
class FakeChain:
    """Balances and permit nonces in place of the chain's views."""

    balances: dict[str, int] = field(default_factory=dict)
    permit_nonces: dict[str, int] = field(default_factory=dict)

    def funds(self, address: str, max_age_seconds: float = 0.0) -> Funds:
        return Funds(self.balances.get(address, 0), self.permit_nonces.get(address, 0))


def store_dataset(storage: Storage) -> str:
    split = describe_split(storage.put(TEXT, max_bytes=2**20).cid, TEXT)
    return storage.put(DatasetManifest(split, split).to_bytes(), max_bytes=2**20).cid


def opened(order: JobOrder, fee_bps: int = 500) -> ChainEvent:
    args = {"jobId": struct_hash(order), "payer": order.payer, "budget": order.budget, "feeBps": fee_bps}
    tx, block = to_hex(secrets.token_bytes(32)), to_hex(secrets.token_bytes(32))
    return ChainEvent("JobEscrow", "JobOpened", args, tx, 1, block, 0, int(utc_now().timestamp()))


class Wakes:
    def __init__(self) -> None:
        self.seen: list[tuple[str, tuple[str, ...]]] = []

    def __call__(self, task: str, arguments: tuple[str, ...]) -> None:
        self.seen.append((task, arguments))

    def names(self) -> set[str]:
        return {task for task, _ in self.seen}


class World:
    """One database with storage; jobs and nodes are inserted, everything else uses the services."""

    def __init__(self, database_url: str, storage: Storage, settings: Settings) -> None:
        self.wakes = Wakes()
        self.database = Database(database_url, enqueue=self.wakes)
        self.storage = storage
        self.settings = settings
        self.be_patient()
        self.wallets: dict[str, LocalAccount] = {}
        self.kept: dict[str, dict[str, bytes]] = {}  # replica states by node and CID
        self.spec = TrainingSpec.from_dict(SPEC | {"data_config": {"dataset": store_dataset(storage)}})

    def be_patient(self) -> None:
        """Let no lease expire and no node count as offline on a slow machine."""
        self.settings = self.settings.model_copy(update={"lease_seconds": 3600.0, "heartbeat_timeout_seconds": 3600.0})

    # --- who takes part

    def wallet(self) -> LocalAccount:
        wallet = Wallets.create()
        self.wallets[wallet.address] = wallet
        with self.database.transaction() as session:
            session.add(Account(address=wallet.address))
        return wallet

    def node(self, *, price: int = ZEN, environment: str = ENVIRONMENT, region: str = "eu") -> str:
        address = str(self.wallet().address)
        self.register(address, price=price, environment=environment, region=region)
        return address

    def register(self, address: str, *, price: int = ZEN, environment: str = ENVIRONMENT, region: str = "eu") -> None:
        with self.database.transaction() as session:
            session.add(
                Provider(
                    address=address,
                    kind="provider",
                    name="node",
                    region=region,
                    hardware={},
                    environment_class=environment,
                    status=ProviderStatus.ACTIVE,
                    tier_id=1,
                    last_seen_at=utc_now(),
                )
            )
            session.flush()
            session.add(Stake(address=address, stake_wei=1000 * ZEN, unbonding_wei=0))
            session.add(
                AskRow(
                    id=to_hex(secrets.token_bytes(32)),
                    provider=address,
                    tier_id=1,
                    gpus=4,
                    min_price_wei=price,
                    valid_until=utc_now() + timedelta(hours=1),
                    nonce=1,
                    signature="0x",
                    status="open",
                )
            )

    def job(
        self,
        *,
        nodes: int = 4,
        redundancy: int = 3,
        wait_seconds: float = 600,
        rounds: int = 2,
        max_price: int = 4 * ZEN,
        requirements: dict[str, object] | None = None,
        sampling_bps: int = 200,
        document: dict[str, Any] | None = None,
    ) -> str:
        """Create a job in the book whose deposit is final; ``document`` replaces its specification."""
        payer = str(self.wallet().address)
        settings = {**SPEC["training_config"], "rounds": rounds}
        document = document or {**self.spec.to_dict(), "training_config": settings}
        spec = TrainingSpec.from_dict(document)
        wait_until = (utc_now() + timedelta(seconds=wait_seconds)).replace(microsecond=0)
        weight = 36_000_000
        order = JobOrder(
            payer=payer,
            specHash=spec.spec_hash(),
            tier=1,
            units=nodes * spec.training.rounds,
            unitWeight=weight,
            segments=spec.segments,
            samplingBps=sampling_bps,
            budget=10 * ZEN,
            maxPrice=max_price,
            waitUntil=int(wait_until.timestamp()),
            nonce=secrets.randbits(128),
        )
        with self.database.transaction() as session:
            session.add(
                Job(
                    id=struct_hash(order),
                    payer=payer,
                    status="submitted",
                    request={},
                    spec=spec.to_dict(),
                    spec_hash=order.specHash,
                    spec_cid=self.storage.put(canonical_json(spec.to_dict()), max_bytes=2**20).cid,
                    tier_id=1,
                    nodes=nodes,
                    rounds=spec.training.rounds,
                    segments=spec.segments,
                    sampling_bps=order.samplingBps,
                    checkpoint_interval=1,
                    redundancy=redundancy,
                    requirements=requirements or {},
                    units_ordered=order.units,
                    unit_weight_us=weight,
                    budget_wei=order.budget,
                    max_price_wei=order.maxPrice,
                    wait_until=wait_until,
                    nonce=order.nonce,
                    order_signature="0x",
                    permit={},
                )
            )
        with self.database.transaction() as session:
            submission.on_job_opened(session, opened(order))
        return struct_hash(order)

    def running(self, nodes: list[str], **options: Any) -> str:
        """Create a job matched with ``nodes`` at 2.5 ZEN, with its first units offered."""
        job_id = self.job(nodes=len(nodes), **options)
        with self.database.transaction() as session:
            assert book.assign(session, self.settings, job_id, 5 * ZEN // 2, None, nodes, ENVIRONMENT)  # type: ignore[arg-type]
        self.dispatch(job_id)
        return job_id

    # --- what happens

    def dispatch(self, job_id: str) -> None:
        rounds_service.dispatch(self.database, self.settings, self.storage, job_id)

    def pull(self, node: str, kind: LeaseKind = LeaseKind.TRAIN) -> LeaseView | None:
        with self.database.transaction() as session:
            return leases.next_lease(session, node, [kind], self.settings.lease_seconds)

    def work(self, node: str, **changes: Any) -> "Work":
        """Pull the node's train lease and prepare an answer."""
        lease = self.pull(node)
        assert lease is not None
        return Work(self, lease, node, **changes)

    def deliver(self, node: str) -> "Work":
        work = self.work(node)
        work.commit()
        work.complete()
        return work

    def train_round(self, job_id: str, nodes: Sequence[str]) -> list["Work"]:
        done = [self.deliver(node) for node in nodes]
        aggregation.aggregate(self.database, self.settings, self.storage, job_id)
        self.dispatch(job_id)
        return done

    def keep(self, node: str, file: bytes) -> str:
        """Index final events and process due work."""
        cid = str(cid_of_file(file))
        self.kept.setdefault(node, {})[cid] = file
        return cid

    def own_file(self, node: str, cid: str | None) -> bytes | None:
        if cid is None:
            return None
        own = self.kept.get(node, {}).get(cid)
        return self.storage.get(cid, max_bytes=2**24) if own is None else own

    def publish(self, node: str) -> bool:
        lease = self.pull(node, LeaseKind.PUBLISH)
        if lease is None:
            return False
        cid = self.storage.put(self.kept[node][lease.task["slot_state_cid"]], max_bytes=2**24).cid
        self.complete(lease, node, CompletePublish(token=lease.token, published_cid=cid))
        return True

    def pin(self, node: str) -> bool:
        lease = self.pull(node, LeaseKind.PIN)
        if lease is None:
            return False
        content = b"".join(self.storage.get(cid, max_bytes=2**24) for cid in lease.task["cids"])
        proof = to_hex(sha256(from_hex(lease.task["nonce"]) + content))
        self.complete(lease, node, CompletePin(token=lease.token, proof=proof))
        return True

    def complete(self, lease: LeaseView, node: str, result: checks.Completion) -> None:
        deliveries.complete(self.database, self.storage, lease.id, node, result)

    def age(self, lease_id: str) -> None:
        with self.database.transaction() as session:
            lease = session.get(Lease, lease_id)
            assert lease is not None
            lease.expires_at = utc_now() - timedelta(seconds=1)

    def start_round(self, job_id: str, *, ago: float) -> None:
        """Let the round and its open units have begun ``seconds`` ago."""
        with self.database.transaction() as session:
            session.get_one(Job, job_id).round_started_at = began = utc_now() - timedelta(seconds=ago)
            session.execute(update(Unit).where(Unit.job_id == job_id, Unit.status == "leased").values(created_at=began))

    # --- what is there

    def read(self, job_id: str) -> Job:
        with self.database.transaction() as session:
            job = session.get(Job, job_id)
            assert job is not None
            return job

    def units(self, job_id: str, **where: Any) -> list[Unit]:
        with self.database.transaction() as session:
            query = select(Unit).filter_by(job_id=job_id, **where).order_by(Unit.round, Unit.slot, Unit.id)
            return list(session.scalars(query))

    def rows(self, query: Callable[[Any], Any]) -> Any:
        with self.database.transaction() as session:
            return query(session)


def at_once(calls: list[Any]) -> list[BaseException | None]:
    """Run the calls concurrently; return the exception of each."""
    barrier = threading.Barrier(len(calls))
    errors: list[BaseException | None] = [None] * len(calls)

    def run(index: int) -> None:
        barrier.wait()
        try:
            calls[index]()
        except BaseException as error:
            errors[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors
