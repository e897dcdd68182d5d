"""A node that does one lease with real training; its fake market fails on demand."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kit.engines.ipfs_processes import StoreProcess
from training_gym.data.dataset import DatasetManifest, describe_shard
from training_gym.spec.config import TrainingSpec
from training_gym.units.checkpoint import CheckpointManifest, initial_checkpoint
from zoo_compute.base.link import Background, Link
from zoo_compute.chain.wallet import Wallet
from zoo_compute.content.gateway import GatewayClient
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.execution.executor import Executor
from zoo_compute.node.market.calls import Lease
from zoo_compute.node.work.acknowledgements import Acknowledgements, Journal
from zoo_compute.node.work.held_lease import HeldLease
from zoo_compute.node.work.worker import Worker
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.hashing import to_hex
from zoo_protocol.messages import Acknowledgement, Domain, UnitCommitment, omissions_domain, typed_data
from zoo_protocol.payments.job_record import leaf_of

JOB = "0x" + "ab" * 32
DOMAIN = Domain(31337, "0x" + "e5" * 20)
WALLET = Wallet("0x" + "33" * 32)
ACKNOWLEDGER = Wallet("0x" + "44" * 32)
OMISSIONS = omissions_domain(31337, "0x" + "e6" * 20)
TEXT = b"".join(b"line %d of a text that a model can learn\n" % n for n in range(500))
TRAINING = {"rounds": 1, "inner_steps": 4, "segment_steps": 2, "batch_size": 2, "warmup_steps": 1}
MODEL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "sequence_length": 16}


class Killed(BaseException):
    pass


@dataclass
class Market:
    """Record and acknowledge reports; raise ``fault`` at the first call of ``at``."""

    store: StoreProcess
    at: str = ""
    fault: BaseException | None = None
    silent: int = 0  # so many commitments are taken and not acknowledged
    link: Link | None = None  # over which pieces come, if any do
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def _called(self, name: str, body: dict[str, Any]) -> None:
        if name == self.at and self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        self.calls.append((name, body))

    def wait_or_stop(self, seconds: float) -> bool:
        return True

    def keep_lease(self, lease: Lease, step: int, probe: str | None = None) -> None:
        self._called("keep" if probe is None else "probe", {"step": step, "probe": probe})

    def commit(self, lease: Lease, body: dict[str, Any]) -> dict[str, Any]:
        self._called("commit", body)
        if "trace_root" not in body:
            return {}
        if self.silent > 0:
            self.silent -= 1
            return {"acknowledgement": None}
        place = (lease.task["round"], lease.task["slot"])
        unit = UnitCommitment(JOB, *place, WALLET.address, body["trace_root"], body["payload_hash"])
        promise = Acknowledgement(to_hex(leaf_of(unit)), int(time.time()) + 600)
        signature = ACKNOWLEDGER.sign_typed_data(typed_data(OMISSIONS, promise))
        return {"acknowledgement": {"include_by": promise.includeBy, "signature": signature}}

    def complete(self, lease: Lease, body: dict[str, Any], size: int = 0) -> None:
        self._called("complete", body)

    def upload(self, content: bytes | Background) -> str:
        self._called("upload", {"size": len(content)})
        return self.store.add(content if isinstance(content, bytes) else b"".join(content))

    def put_piece(self, _lease: Lease, cid: str, number: int, piece_cid: str, content: bytes) -> None:
        assert (cid, number, cid_of_file(content)) == (piece_cid, 0, piece_cid)
        self._called("put_piece", {"size": len(content)})
        if self.link is not None:
            self.link.up.throttle(len(content))

    def order(self) -> list[str]:
        return [name for name, _ in self.calls if name != "keep"]

    def body(self, name: str) -> dict[str, Any]:
        return next(body for called, body in self.calls if called == name)


def stored_spec(store: StoreProcess, training: dict[str, Any]) -> TrainingSpec:
    """Return the specification of a tiny model whose data ``store`` has."""
    split = describe_shard(store.add(TEXT), TEXT)
    dataset = store.add(DatasetManifest((split,), (split,)).to_bytes())
    document = {"model_config": MODEL, "data_config": {"dataset": dataset}, "training_config": training}
    return TrainingSpec.from_dict(document)


def task_to_train(store: StoreProcess, environment_class: str, **training: Any) -> dict[str, Any]:
    spec = stored_spec(store, TRAINING | training)
    model = store.add(initial_checkpoint(spec))
    manifest = CheckpointManifest(JOB, 0, None, model, None, None, None, {}, 0, spec.spec_hash())
    return {
        "job_id": JOB,
        "spec": spec.to_dict(),
        "round": 0,
        "slot": 2,
        "checkpoint_cid": store.add(manifest.to_bytes()),
        "slot_state_cid": None,
        "restored_payload_cid": None,
        "eager_payload_cid": None,
        "environment": environment_class,
    }


def lease(kind: str, task: dict[str, Any]) -> Lease:
    return Lease(f"lease-of-{kind}", kind, JOB, "0x" + "00" * 32, task, 8.0)


@dataclass
class OneNode:
    """A node and a unit for it to train; it does each lease in a process of its own."""

    store: StoreProcess
    executor: Executor
    directory: Path
    training: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.task = task_to_train(self.store, self.executor.environment_class, **self.training)

    @property
    def workspace(self) -> Workspace:
        return Workspace(self.directory)

    def train(self, market: Market, **options: Any) -> Worker:
        return self.work(market, lease("train", self.task), **options)

    def work(
        self, market: Market, held: Lease, at: str = "", link: Link | None = None, make: Callable[..., Worker] = Worker
    ) -> Worker:
        """Do one lease; ``at`` names the directory of another node."""
        workspace = Workspace(self.directory / at)
        gateway = GatewayClient([market.store.gateway_url], store=workspace.store)
        network = SimpleNamespace(chain_id=31337, contracts={"Omissions": OMISSIONS.contract})
        terms = SimpleNamespace(compensation=1)
        chain = SimpleNamespace(is_acknowledger=ACKNOWLEDGER.address.__eq__, bond=lambda: 1, terms=lambda: terms)
        taken = Acknowledgements(Journal(workspace.acknowledgements), network, lambda: chain)  # type: ignore[arg-type,return-value]
        worker = make(market, WALLET, DOMAIN, workspace, gateway, self.executor, taken, link or Link())
        with HeldLease(market, held) as holding:  # type: ignore[arg-type]
            worker.do(holding)
        return worker
