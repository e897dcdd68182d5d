"""Live verification: real training, replays by real nodes, windows and slashes.

Nodes run the code that they run everywhere (``zoo_compute.node.work.worker.Worker`` and its training child). Only
HTTP is left
out: their market calls the services. Jobs are put in as funded; what the chain knows is stakes, windows and penalties.
"""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from eth_account import Account as Wallets
from sqlalchemy import update

from kit import records
from kit.chain.deployed_chain import OTHER, Chain, wallet
from kit.chain.deployed_chain import Wallet as ChainWallet
from kit.jobs.jobs_fixtures import ZEN
from kit.jobs.unit_results import ACKNOWLEDGER, DOMAIN
from kit.verification.verification_fixtures import VerificationWorld
from kit.waiting import drain
from market.chain.indexer import Indexer
from market.domain.network import DEVNET
from market.jobs.models import Slot
from market.platform.storage.client import Storage
from market.settings import Settings
from market.training.deliveries import service as deliveries
from market.training.leases import probes, schemas
from market.training.leases import service as leases
from market.training.leases.errors import LeaseLost
from market.verification.decisions import service as decisions_service
from training_gym.spec.errors import GymError
from worker.chain_handlers import INTENT_HANDLERS, event_handlers
from zoo_compute.base.errors import ApiError
from zoo_compute.base.link import Background, Link
from zoo_compute.chain.wallet import Wallet
from zoo_compute.content.gateway import GatewayClient
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.execution.executor import Executor, ExecutorError
from zoo_compute.node.market.calls import Lease
from zoo_compute.node.work.acknowledgements import Acknowledgements, Journal
from zoo_compute.node.work.held_lease import HeldLease
from zoo_compute.node.work.inputs import SlotStateMissing
from zoo_compute.node.work.states import StateUnavailable
from zoo_compute.node.work.worker import Worker

OMISSIONS = "0x" + "12" * 20  # of unit_work.ACKNOWLEDGER
_SEEDS = count(1)
TRAINING = {"rounds": 2, "inner_steps": 8, "segment_steps": 2, "warmup_steps": 1, "batch_size": 4}
_COMPLETIONS = {
    "train": schemas.CompleteTraining,
    "reveal": schemas.CompleteReveal,
    "replay": schemas.CompleteReplay,
    "pin": schemas.CompletePin,
    "publish": schemas.CompletePublish,
    "follow": schemas.CompleteFollow,
    "evaluate": schemas.CompleteEvaluation,
}


@dataclass
class Node:
    """A provider or verifier: its key, directory and executor."""

    address: str
    key: str
    executor: Executor
    worker: Worker
    failures: list[str] = field(default_factory=list)


class LiveWorld(VerificationWorld):
    """``challenger`` opens disputes, or the operator slashes; ``former`` accounts finish theirs."""

    challenger: str | None = None
    domain = DOMAIN
    """Under which units are signed."""
    former: Collection[str] = ()
    executor: Executor
    """Of nodes that are given none of their own."""
    api_url: str

    def __init__(
        self, database_url: str, storage: Storage, settings: Settings, deployed: Chain, gateway: str, directory: Path
    ) -> None:
        super().__init__(database_url, storage, settings)
        self.deployed, self.gateway, self.directory = deployed, gateway, directory
        self._sender = deployed.sender(self.database, INTENT_HANDLERS)
        handlers = event_handlers(DEVNET, deployed.deployment)
        self._indexer = Indexer(self.database, deployed.client(), deployed.deployment, handlers)

    def provider_node(self, account: ChainWallet, executor: Executor | None = None) -> Node:
        executor = executor or self.executor
        self._know(account)
        self.register(account.address, environment=executor.environment_class)
        self.deployed.send(OTHER, "ZenToken", "transfer", account.address, 2_000 * ZEN)
        self.deployed.stake(account, 1_000 * ZEN)
        self.step()
        return self._node(account.address, account.key, executor)

    def registered_node(self, account: ChainWallet) -> Node:
        """Return the node of a wallet that registered itself."""
        self.wallets[account.address] = Wallets.from_key(account.key)
        return self._node(account.address, account.key, self.executor)

    def verifier_node(self, executor: Executor | None = None) -> Node:
        executor = executor or self.executor
        address = self.verifier(environment=executor.environment_class)
        return self._node(address, "0x" + bytes(self.wallets[address].key).hex(), executor)

    def staked_verifier_node(self, account: ChainWallet, executor: Executor) -> Node:
        self._know(account)
        self.verifier(environment=executor.environment_class, address=account.address)
        self.deployed.send(OTHER, "ZenToken", "transfer", account.address, 500 * ZEN)
        self.deployed.stake(account, 500 * ZEN)
        self.step()
        return self._node(account.address, account.key, executor)

    def _know(self, account: ChainWallet) -> None:
        self.wallets[account.address] = Wallets.from_key(account.key)
        self.add(records.account(account.address))

    def _node(self, address: str, key: str, executor: Executor) -> Node:
        workspace = Workspace(self.directory / address)
        network = SimpleNamespace(chain_id=31337, contracts={"Omissions": OMISSIONS})
        terms = SimpleNamespace(compensation=1)
        chain = SimpleNamespace(is_acknowledger=lambda signer: True, bond=lambda: 1, terms=lambda: terms)
        link = Link()
        worker = Worker(
            market=_Market(self, address),  # type: ignore[arg-type]
            wallet=Wallet(key),
            domain=self.domain,
            workspace=workspace,
            gateway=GatewayClient([self.gateway], store=workspace.store, link=link),
            executor=executor,
            link=link,
            acknowledgements=Acknowledgements(Journal(workspace.acknowledgements), network, lambda: chain),  # type: ignore[arg-type,return-value]
        )
        return Node(address, key, executor, worker)

    def live_job(self, nodes: list[Node], **training: Any) -> str:
        """Start a job of these nodes in which every segment is sampled."""
        self.leave_jobs(*nodes)
        # With a seed of its own: no other test's job has the same states, which storage would know already.
        document = {**self.spec.to_dict(), "training_config": TRAINING | {"seed": next(_SEEDS)} | training}
        month = 30 * 86_400  # its order can be put in escrow whatever time has passed on the chain
        job_id = self.job(nodes=len(nodes), sampling_bps=10_000, wait_seconds=month, document=document)
        self.place_on(job_id, nodes)
        return job_id

    def train(self, *nodes: Node) -> str:
        """Start a job of these nodes and let each train its first unit."""
        job_id = self.live_job(list(nodes))
        for node in nodes:
            self.work_off(node, schemas.LeaseKind.TRAIN)
        return job_id

    def place_on(self, job_id: str, nodes: Sequence[Node]) -> None:
        self.place(job_id, [node.address for node in nodes], nodes[0].executor.environment_class)

    def leave_jobs(self, *nodes: Node) -> None:
        self.execute(update(Slot).where(Slot.provider.in_([node.address for node in nodes])).values(provider=None))

    def work_off(self, node: Node, *kinds: schemas.LeaseKind) -> None:
        """Let a node do all its tasks; it gives back impossible ones with a reason."""
        while True:
            view = self.call(leases.next_lease, node.address, list(kinds), self.settings.lease_seconds)
            if view is None:
                return
            self._do(node, view)

    def _do(self, node: Node, view: schemas.LeaseView) -> None:
        lease = Lease.from_dict(json.loads(view.model_dump_json()))
        try:
            with HeldLease(node.worker.market, lease) as held:
                rest = node.worker.do(held)
                if rest is not None:
                    rest()
        except ApiError as error:
            node.failures.append(error.detail)
        except (OSError, GymError, ExecutorError, SlotStateMissing, StateUnavailable) as error:
            node.failures.append(type(error).__name__)
            with self.database.transaction() as session:
                code = str(getattr(error, "code", "input_missing"))
                leases.fail(session, view.id, node.address, view.token, code, str(error)[:200])

    def step(self) -> None:
        """Let the market, sender and indexer do due work, and mine."""
        chain = self.deployed.views
        decisions_service.advance(
            self.database, self.storage, self.settings, DEVNET, chain, self.challenger, former=self.former
        )
        drain(self._sender)
        self.deployed.anvil.mine(4)
        drain(self._sender)
        drain(self._indexer)

    def decide(self, job_id: str, providers: list[Node], verifiers: list[Node]) -> None:
        """Step until every delivered unit is decided and every penalty is final."""
        for _ in range(40):
            self.step()
            for node in providers:
                self.work_off(node, schemas.LeaseKind.REVEAL, schemas.LeaseKind.PIN)
            for node in verifiers:
                self.work_off(node, schemas.LeaseKind.REPLAY)
            undecided = [unit for unit in self.units(job_id) if unit.status in ("uploaded", "checking")]
            if not undecided and all(slash.tx for slash in self.slashes()):
                return
        raise AssertionError(f"not decided: {[(unit.slot, unit.status) for unit in self.units(job_id)]}")


AnyLiveWorld = TypeVar("AnyLiveWorld", bound=LiveWorld)
LiveMaker = Callable[[type[AnyLiveWorld]], AnyLiveWorld]


@dataclass
class _Market:
    world: LiveWorld
    node: str

    def keep_lease(self, lease: Lease, step: int, probe: str | None = None) -> None:
        """Leases do not expire here; the call after a probe is refused if that ended the lease."""
        held, seconds = (lease.id, self.node, lease.token), self.world.settings.lease_seconds
        try:
            if probe is not None:
                self.world.call(probes.record_probe, *held, probe, seconds)
            elif not step and lease.task.get("probe"):
                self.world.call(leases.heartbeat, *held, step, seconds)
        except LeaseLost as error:
            raise ApiError(409, error.code, error.detail) from error

    def upload(self, content: bytes | Background) -> str:
        return self.world.storage.put(
            b"".join([content] if isinstance(content, bytes) else content), max_bytes=2**24
        ).cid

    def commit(self, lease: Lease, body: dict[str, Any]) -> dict[str, Any]:
        model = schemas.CommitTraining if "trace_root" in body else schemas.CommitReplay
        given = model.model_validate({"token": lease.token, **body})
        answer = self.world.call(deliveries.commit, DEVNET, self.world.domain, ACKNOWLEDGER, lease.id, self.node, given)
        return {} if answer is None else {"acknowledgement": json.loads(answer.model_dump_json())}

    def complete(self, lease: Lease, body: dict[str, Any], size: int = 0) -> None:
        result = _COMPLETIONS[lease.kind].model_validate({"token": lease.token, **body})
        deliveries.complete(self.world.database, self.world.storage, lease.id, self.node, result)  # type: ignore[arg-type]


@contextmanager
def executors(directory: Path, *makers: Callable[..., Executor]) -> Iterator[list[Executor]]:
    """Yield warm training children and end them."""
    from training_gym.runtime.profile import CPU

    running = []
    try:
        for number, make in enumerate(makers):
            workdir = directory / f"executor-{number}"
            workdir.mkdir()
            running.append(make(CPU, 1 << 30, workdir))
            running[-1].start()
        yield running
    finally:
        for executor in running:
            executor.close()


HONEST_ACCOUNT, CHEAT_ACCOUNT = wallet(6), wallet(7)
