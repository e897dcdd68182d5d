"""Disputes of live nodes' units on their own chain: training, windows, contract."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kit.chain.deployed_chain import OPERATOR, OTHER, Chain, Wallet
from kit.verification.live_fixtures import HONEST_ACCOUNT, TRAINING, LiveMaker, LiveWorld, Node
from market.domain.network import DEVNET, ZEN
from market.jobs import service as jobs_service
from market.payments.settlement.record import build_record
from market.platform.storage.client import Storage
from market.settings import Settings
from market.training.leases.schemas import LeaseKind
from market.training.units import service as units_service
from market.training.units.models import Unit
from market.verification.samples import service as samples
from zoo_compute.chain.disputes import Dispute, DisputeChain, Opened
from zoo_compute.chain.wallet import Wallet as NodeWallet
from zoo_compute.node.disk.traces import Traces
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.disputes.defence import Disputes
from zoo_protocol.content.cid import parse
from zoo_protocol.hashing import from_hex, to_hex
from zoo_protocol.messages import Domain, JobOrder, UnitCommitment, permit_typed_data, sign, typed_data
from zoo_protocol.payments.job_record import PaidUnit, leaf_of
from zoo_protocol.payments.settlement_batch import JobLine, claim_leaf, paid_leaf, settlement_hash

TERMS = DEVNET.disputes


@dataclass(frozen=True)
class Delivered:
    """A unit in a window on chain, with the data that a challenger needs."""

    order: JobOrder
    unit: UnitCommitment
    signature: str
    window: str
    proof: list[str]

    @property
    def unit_id(self) -> str:
        return to_hex(leaf_of(self.unit))


@pytest.fixture(name="settings")
def settings_of_disputes(settings: Settings, chain: Chain) -> Settings:
    names = ("rpc_url", "deployment_file", "acknowledger_key")
    return settings.model_copy(update={name: getattr(chain.settings, name) for name in names})


@pytest.fixture(name="live")
def world_of_disputes(live_of: LiveMaker) -> "DisputeWorld":
    world: DisputeWorld = live_of(DisputeWorld)
    return world


@pytest.fixture(name="node")
def honest_node(live: "DisputeWorld") -> Node:
    live.deployed.anvil.rpc("anvil_setBalance", HONEST_ACCOUNT.address, hex(ZEN))
    return live.provider_node(HONEST_ACCOUNT)


@pytest.fixture(name="unit")
def unit_of_the_node(live: "DisputeWorld", node: Node) -> Delivered:
    return live.delivered(node)


class DisputeWorld(LiveWorld):
    def __init__(
        self, database_url: str, storage: Storage, settings: Settings, deployed: Chain, gateway: str, directory: Path
    ) -> None:
        super().__init__(database_url, storage, settings, deployed, gateway, directory)
        self.domain = Domain(31337, deployed.deployment.address("JobEscrow"))

    def delivered(self, node: Node, **training: Any) -> Delivered:
        """Train, commit and deliver a unit of a new job; ``training`` replaces ``TRAINING``."""
        self.leave_jobs(node)
        job_id = self.job(
            nodes=1, wait_seconds=30 * 86_400, document={**self.spec.to_dict(), "training_config": TRAINING | training}
        )
        self.place_on(job_id, [node])
        self.work_off(node, LeaseKind.TRAIN)
        (row,) = self.units(job_id, provider=node.address)
        return self.included(row)

    def included(self, row: Unit) -> Delivered:
        job_id = row.job_id
        assert row.trace_root
        assert row.payload_hash
        assert row.commitment_signature
        unit = UnitCommitment(job_id, row.round, row.slot, row.provider, row.trace_root, row.payload_hash)
        for _ in range(10):
            self.step()
            with self.database.transaction() as session:
                order = jobs_service.get(session, job_id).order
                shown = samples.inclusion(session, to_hex(leaf_of(unit)))
            if shown is not None and shown.window_root is not None:
                return Delivered(order, unit, row.commitment_signature, shown.window_root, list(shown.proof))
        raise AssertionError("no window")

    settled: JobLine
    """What the last settlement took from its job."""
    settled_proof: list[str]
    """Proof of its only unit."""

    def settle(self, delivered: Delivered) -> None:
        """Escrow the job and settle the unit on chain."""
        self.open_in_escrow(delivered.order)
        with self.database.transaction() as session:
            units = units_service.job_units(session, delivered.unit.jobId)
            record = build_record(session, DEVNET, jobs_service.get(session, delivered.unit.jobId), units[:1])
        stored = parse(self.storage.put(record.to_bytes(), max_bytes=2**20).cid)
        line = JobLine(delivered.unit.jobId, 25 * ZEN // 10, 1, 0, 1, False, to_hex(stored.digest))
        unit, claim = delivered.unit, claim_leaf(delivered.unit.provider, 1)
        fields = (unit.jobId, unit.round, unit.slot, unit.provider, unit.traceRoot, unit.payloadHash)
        paid = paid_leaf(PaidUnit(*fields, str(line.price)))
        self.settled, self.settled_proof = line, [to_hex(settlement_hash(claim, paid, [line])), to_hex(claim)]
        self.transact(OPERATOR, "JobEscrow", "settle", to_hex(claim), to_hex(paid), [line.as_argument()])

    def open_in_escrow(self, order: JobOrder) -> None:
        payer = self.wallets[order.payer]
        key = to_hex(bytes(payer.key))
        deployment, escrow = self.deployed.deployment, self.deployed.deployment.address("JobEscrow")
        self.transact(OTHER, "ZenToken", "transfer", payer.address, order.budget)
        signature = sign(key, typed_data(Domain(31337, escrow), order))
        token = deployment.address("ZenToken")
        permit = permit_typed_data(31337, token, "ZEN", payer.address, escrow, order.budget, 0, order.waitUntil)
        raw = bytes.fromhex(sign(key, permit)[2:])
        split = (order.waitUntil, raw[64], raw[:32], raw[32:64])
        self.transact(OTHER, "JobEscrow", "deposit", payer.address, order.budget, *split)
        self.transact(OTHER, "JobEscrow", "openJob", _fields(order), signature)

    def fund(self, challenger: Wallet) -> None:
        """Give a challenger the bond and approve its transfer."""
        self.transact(OTHER, "ZenToken", "transfer", challenger.address, TERMS.bond_wei)
        disputes = self.deployed.deployment.address("Disputes")
        self.transact(challenger, "ZenToken", "approve", disputes, TERMS.bond_wei)

    def dispute(self, challenger: Wallet, delivered: Delivered) -> Opened:
        """Open a dispute of the unit."""
        self.fund(challenger)
        return self.open(challenger, delivered)

    def open(self, challenger: Wallet, delivered: Delivered) -> Opened:
        order, unit = _fields(delivered.order), _fields(delivered.unit)
        proof = [from_hex(node) for node in delivered.proof]
        arguments = [order, unit, delivered.signature, delivered.window, proof]
        self.transact(challenger, "Disputes", "open", *arguments)
        dispute_id = self.chain_of(challenger)._disputes.functions.disputeIdOf(
            from_hex(delivered.unit_id), challenger.address
        )
        block = self.deployed.client().head().number
        return Opened(to_hex(dispute_id.call()), delivered.unit_id, challenger.address, delivered.order.segments, block)

    def transact(self, sender: Wallet, contract: str, function: str, *arguments: Any) -> None:
        sent = self.deployed.send(sender, contract, function, *arguments)
        assert self.deployed.anvil.rpc("eth_getTransactionReceipt", sent)["status"] == "0x1", function

    def chain_of(self, wallet: Wallet | Node, url: str | None = None) -> DisputeChain:
        contracts = self.deployed.deployment.contracts
        return DisputeChain(url or self.deployed.anvil.url, contracts, NodeWallet(wallet.key))

    def watch_of(self, node: Node, url: str | None = None) -> Disputes:
        """Return the node's watch after a restart."""
        workspace = Workspace(self.directory / node.address)
        return Disputes(workspace.disputes, Traces(workspace.traces), lambda: self.chain_of(node, url))

    def state(self, opened: Opened) -> Dispute:
        return self.chain_of(OTHER).dispute(opened.dispute_id)

    def sent_by(self, node: Node) -> int:
        return int(self.deployed.anvil.rpc("eth_getTransactionCount", node.address, "latest"), 16)

    def waiting(self, node: Node) -> list[dict[str, str]]:
        found = self.deployed.anvil.rpc("txpool_content")["pending"]
        return [
            sent for sender, queue in found.items() if sender.lower() == node.address.lower() for sent in queue.values()
        ]

    def pass_turn(self) -> None:
        self.deployed.anvil.rpc("evm_increaseTime", TERMS.turn_seconds + 1)
        self.deployed.anvil.mine()


def _fields(message: JobOrder | UnitCommitment) -> dict[str, Any]:
    return {name: getattr(message, name) for name in message.__slots__}
