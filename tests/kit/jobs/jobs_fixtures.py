"""A small market for tests of jobs: real database and storage, nodes without training.

What a node delivers here is a well-formed payload of random numbers under a real commitment. The market accepts it,
as it must: only a replay finds the difference. The chain is a fake that knows balances and permit nonces.
"""

import secrets
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from eth_account import Account as Wallets
from eth_account.signers.local import LocalAccount
from sqlalchemy import select, update

from kit import records
from kit.jobs.unit_results import Work
from kit.records import ENVIRONMENT, Records
from market.chain.contracts.codec import ChainEvent
from market.chain.views import Funds
from market.domain.network import DEVNET, ZEN
from market.jobs.models import Job, Slot
from market.orders import submission
from market.platform.db.base import utc_now
from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.settings import Settings
from market.training.aggregation import service as aggregation
from market.training.checkpoints.models import Checkpoint
from market.training.deliveries import checks
from market.training.deliveries import service as deliveries
from market.training.leases import service as leases
from market.training.leases.models import Lease
from market.training.leases.schemas import CompletePin, CompletePublish, LeaseKind, LeaseView
from market.training.matching import book
from market.training.rounds import service as rounds_service
from market.training.units import service as units_service
from market.training.units.models import Unit
from training_gym.data.dataset import DatasetManifest, describe_shard
from training_gym.spec.config import TrainingSpec
from training_gym.units.checkpoint import CheckpointManifest
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.hashing import canonical_json, from_hex, sha256, to_hex
from zoo_protocol.messages import JobOrder, struct_hash

TEXT = b"the quick brown fox jumps over the lazy dog " * 40
SPEC = {
    "model_config": {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "sequence_length": 8},
    "training_config": {"rounds": 2, "inner_steps": 4, "segment_steps": 2, "warmup_steps": 1, "batch_size": 2},
}


@dataclass
class FakeChain:
    """Balances in the escrow, wallets and permit nonces in place of the chain's views."""

    balances: dict[str, int] = field(default_factory=dict)
    drawn: dict[str, int] = field(default_factory=dict)
    wallets: dict[str, int] = field(default_factory=dict)
    permit_nonces: dict[str, int] = field(default_factory=dict)

    def funds(self, address: str, max_age_seconds: float = 0.0) -> Funds:
        return Funds(self.balances.get(address, 0), self.drawn.get(address, 0))

    def wallet(self, address: str) -> tuple[int, int]:
        return self.wallets.get(address, 0), self.permit_nonces.get(address, 0)


def store_dataset(storage: Storage) -> str:
    split = describe_shard(storage.put(TEXT, max_bytes=2**20).cid, TEXT)
    return storage.put(DatasetManifest((split,), (split,)).to_bytes(), max_bytes=2**20).cid


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


class World(Records):
    """One database with storage; jobs and nodes are inserted, everything else uses the services."""

    def __init__(self, database_url: str, storage: Storage, settings: Settings) -> None:
        self.wakes = Wakes()
        self.database = Database(database_url, enqueue=self.wakes)
        self.storage = storage
        self.settings = settings
        self.network = DEVNET
        self.be_patient()
        self.wallets: dict[str, LocalAccount] = {}
        self.kept: dict[str, dict[str, bytes]] = {}  # replica states by node and CID
        self.spec = TrainingSpec.from_dict(SPEC | {"data_config": {"dataset": store_dataset(storage)}})

    def be_patient(self) -> None:
        """Let no lease expire and no node count as offline on a slow machine."""
        self.settings = self.settings.model_copy(update={"lease_seconds": 3600.0, "heartbeat_timeout_seconds": 3600.0})

    def wallet(self) -> LocalAccount:
        wallet = Wallets.create()
        self.wallets[wallet.address] = wallet
        self.add(records.account(wallet.address))
        return wallet

    def node(self, **terms: Any) -> str:
        address = str(self.wallet().address)
        self.register(address, **terms)
        return address

    def register(
        self,
        address: str,
        *,
        price: int = ZEN,
        environment: str = ENVIRONMENT,
        region: str = "eu",
        mflops: int | None = None,
    ) -> None:
        terms = {"region": region, "environment_class": environment, "measured_mflops": mflops}
        node = records.provider(address, last_seen_at=utc_now(), **terms)
        self.add(node, records.stake(address, 1000 * ZEN), records.ask(address, price))

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
        tier: int = 1,
    ) -> str:
        """Create a job in the book whose deposit is final; ``document`` replaces its specification."""
        payer = str(self.wallet().address)
        settings = {**SPEC["training_config"], "rounds": rounds}
        document = document or {**self.spec.to_dict(), "training_config": settings}
        data = {key: value for key, value in document["data_config"].items() if key != "replicas"}
        spec = TrainingSpec.from_dict({**document, "data_config": data}, nodes)
        order = JobOrder(
            payer=payer,
            specHash=spec.spec_hash(),
            tier=tier,
            units=nodes * spec.training.rounds,
            unitWeight=36_000_000,
            segments=spec.segments,
            samplingBps=sampling_bps,
            budget=10 * ZEN,
            maxPrice=max_price,
            waitUntil=int(utc_now().timestamp() + wait_seconds),
            nonce=secrets.randbits(128),
        )
        row = records.job(
            order,
            spec=spec.to_dict(),
            spec_cid=self.storage.put(canonical_json(spec.to_dict()), max_bytes=2**20).cid,
            nodes=nodes,
            rounds=spec.training.rounds,
            redundancy=redundancy,
            requirements=requirements or {},
        )
        self.add(row)
        with self.database.transaction() as session:
            submission.on_job_opened(session, opened(order))
        return struct_hash(order)

    def running(self, nodes: list[str], **options: Any) -> str:
        """Create a job matched with ``nodes`` at 2.5 ZEN, with its first units offered."""
        job_id = self.job(nodes=len(nodes), **options)
        self.place(job_id, nodes)
        return job_id

    def delivered_job(self, nodes: list[str], **options: Any) -> str:
        """Create a running job whose first units these nodes have delivered."""
        job_id = self.running(nodes, **options)
        self.deliver_all(nodes)
        return job_id

    def place(self, job_id: str, nodes: list[str], environment: str = ENVIRONMENT) -> None:
        """Match the job with ``nodes`` at 2.5 ZEN and offer its first units."""
        with self.database.transaction() as session:
            assert book.assign(session, self.settings, job_id, 5 * ZEN // 2, None, nodes, environment)  # type: ignore[arg-type]
        self.dispatch(job_id)

    def dispatch(self, job_id: str) -> None:
        rounds_service.dispatch(self.database, self.settings, self.storage, job_id)

    def pull(self, node: str, kind: LeaseKind = LeaseKind.TRAIN) -> LeaseView | None:
        with self.database.transaction() as session:
            return leases.next_lease(session, node, [kind], self.settings.lease_seconds)

    def pulled(self, node: str, kind: LeaseKind = LeaseKind.TRAIN) -> LeaseView:
        lease = self.pull(node, kind)
        assert lease is not None
        return lease

    def work(self, node: str, **changes: Any) -> "Work":
        """Pull the node's train lease and prepare an answer."""
        return Work(self, self.pulled(node), node, **changes)

    def deliver(self, node: str) -> "Work":
        work = self.work(node)
        work.deliver()
        return work

    def deliver_all(self, nodes: Iterable[str]) -> list["Work"]:
        return [self.deliver(node) for node in nodes]

    def deliver_and_go_on(self, job_id: str, *nodes: str) -> None:
        self.deliver_all(nodes)
        self.dispatch(job_id)

    def commit_and_go_on(self, job_id: str, node: str) -> "Work":
        """Commit a unit whose upload is not complete, and offer what it allows."""
        work = self.work(node)
        work.commit()
        self.dispatch(job_id)
        return work

    def diverge(self, nodes: Iterable[str]) -> None:
        """Let each node give up its unit, whose training diverged."""
        for node in nodes:
            lease = self.pulled(node)
            self.call(leases.fail, lease.id, node, lease.token, "diverged", "loss is not finite at step 2")

    def aggregate(self, job_id: str) -> None:
        aggregation.aggregate(self.database, self.settings, self.storage, job_id)

    def close_round(self, job_id: str) -> None:
        """Aggregate the round and offer the next one's units."""
        self.aggregate(job_id)
        self.dispatch(job_id)

    def end_round(self, job_id: str) -> None:
        """Close the round, which has all that it needs."""
        before = self.read(job_id).current_round
        self.aggregate(job_id)
        assert self.read(job_id).current_round == before + 1
        self.dispatch(job_id)

    def train_round(self, job_id: str, nodes: Iterable[str]) -> list["Work"]:
        done = self.deliver_all(nodes)
        self.close_round(job_id)
        return done

    def keep(self, node: str, file: bytes) -> str:
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
        self.change(Lease, lease_id, expires_at=utc_now() - timedelta(seconds=1))

    def start_round(self, job_id: str, *, ago: float) -> None:
        """Let the round and its open units have begun ``ago`` seconds ago."""
        began = utc_now() - timedelta(seconds=ago)
        self.change(Job, job_id, round_started_at=began)
        self.execute(update(Unit).where(Unit.job_id == job_id, Unit.status == "leased").values(created_at=began))

    def read(self, job_id: str) -> Job:
        job: Job = self.get(Job, job_id)
        return job

    def units(self, job_id: str, **where: Any) -> list[Unit]:
        return self.all(select(Unit).filter_by(job_id=job_id, **where).order_by(Unit.round, Unit.slot, Unit.id))

    def attempt(self, job_id: str, round_: int, slot: int) -> Unit:
        """Return the replica's unit that is neither lost nor rejected."""
        [unit] = [one for one in self.units(job_id, round=round_, slot=slot) if one.status not in ("lost", "rejected")]
        return unit

    def holders(self, job_id: str) -> list[str | None]:
        return self.all(select(Slot.provider).where(Slot.job_id == job_id).order_by(Slot.slot))

    def checkpoint(self, job_id: str, round_: int = 1) -> str:
        """Return the CID of the checkpoint after ``round_`` rounds."""
        return str(self.one(select(Checkpoint.cid).where(Checkpoint.job_id == job_id, Checkpoint.round == round_)))

    def manifest(self, job_id: str, round_: int) -> CheckpointManifest:
        return CheckpointManifest.from_bytes(self.storage.get(self.checkpoint(job_id, round_), max_bytes=2**20))

    def verify_uploaded(self, job_id: str) -> None:
        for unit in self.units(job_id, status="uploaded"):
            self.call(units_service.mark_checking, unit.id, 2500)
            self.call(units_service.pass_unit, unit.id)


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
