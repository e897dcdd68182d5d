"""The market as challenger next to live nodes, verifiers and referees."""

from collections.abc import Sequence

import pytest
from pydantic import SecretStr
from sqlalchemy import select

from kit import records
from kit.chain.deployed_chain import OTHER, Wallet, wallet
from kit.disputes.dispute_fixtures import TERMS, ZEN
from kit.disputes.referee_fixtures import REFEREES, RefereeWorld
from kit.verification.live_fixtures import LiveMaker, Node
from market.chain.models import TxIntent
from market.chain.transactions.sender import Sender
from market.chain.transactions.signer import Signer
from market.domain.lifecycle import UNIT_DECIDED
from market.domain.network import DEVNET
from market.jobs import service as jobs_service
from market.ledger.reconciliation import reconcile
from market.payments.settlement import dispute_keeper
from market.payments.settlement.record import build_record
from market.training.leases.schemas import LeaseKind
from market.training.units.models import Unit
from market.verification.disputes.models import Challenge
from worker.chain_handlers import INTENT_HANDLERS
from zoo_compute.node.disputes.referee import Referee
from zoo_compute.node.execution.executor import Executor
from zoo_protocol.hashing import keccak, to_hex
from zoo_protocol.payments.job_record import JobRecord

MARKET = wallet(30)
ANOTHER_CLASS = "0x" + "cd" * 32
LIE = to_hex(keccak(b"what no training gives"))


class WrongExecutor(Executor):
    def run(self, task, *options, **more):  # type: ignore[no-untyped-def]
        return {"end_leaf": LIE, "steps": 0} if task["kind"] == "replay" else super().run(task, *options, **more)


class _Senders:
    def __init__(self, senders: Sequence[Sender]) -> None:
        self._senders = senders

    def step(self) -> bool:
        moved = [sender.step() for sender in self._senders]
        return any(moved)


class QuorumWorld(RefereeWorld):
    """A market whose account has bonds for three disputes."""

    referees_here: Sequence[Referee] = ()

    def referees(self, of_class: int = len(REFEREES)) -> list[Referee]:
        """Return all referees, listed; those after ``of_class`` have another class."""
        found = super().referees()
        for place, account in enumerate(REFEREES):
            environment = self.executor.environment_class if place < of_class else ANOTHER_CLASS
            address = account.address
            self.add(records.account(address), records.verifier(address, environment_class=environment))
            found[place] = self.referee(account, environment=environment)
        return found

    def give_account(self, bonds: int = 3, account: Wallet = MARKET) -> None:
        self.deployed.anvil.rpc("anvil_setBalance", account.address, hex(ZEN))
        if bonds:
            self.deployed.send(OTHER, "ZenToken", "transfer", account.address, bonds * TERMS.bond_wei)
        self.restart(account)

    def restart(self, account: Wallet = MARKET, *former: Wallet) -> None:
        self.challenger, self.former = account.address, [before.address for before in former]
        operator = self.deployed.sender(self.database, INTENT_HANDLERS)
        own = [self._sender_of(Signer(SecretStr(known.key))) for known in (account, *former)]
        self._sender = _Senders([operator, *own])  # type: ignore[assignment]

    def _sender_of(self, signer: Signer) -> Sender:
        chain, deployment = self.deployed.client(), self.deployed.deployment
        return Sender(self.database, chain, deployment, signer, self.deployed.settings, INTENT_HANDLERS, signer.address)

    def turn(self, nodes: Sequence[Node], verifiers: Sequence[Node]) -> None:
        self.step()
        for node in nodes:
            self.work_off(node, LeaseKind.REVEAL, LeaseKind.PIN)
        for node in verifiers:
            self.work_off(node, LeaseKind.REPLAY)
        self.step()
        for node in nodes:
            self.watch_of(node).watch()
            self.discloser(node).watch()
        for referee in self.referees_here:
            referee.watch()
        dispute_keeper.queue_due_calls(self.database, DEVNET, self.deployed.views)

    def until(self, status: str, job_id: str, cheat: Node, nodes: Sequence[Node], verifiers: Sequence[Node]) -> Unit:
        """Step until the unit of ``cheat`` has this status."""
        for _ in range(40):
            self.turn(nodes, verifiers)
            (unit,) = self.units(job_id, provider=cheat.address)
            if unit.status == status:
                return unit
        raise AssertionError(f"it is {unit.status} ({unit.reason}); {[(i.function, i.status) for i in self.sent()]}")

    def until_decided(self, job_id: str, nodes: Sequence[Node], verifiers: Sequence[Node]) -> None:
        """Step until all units are decided, penalties are final and bonds are returned."""
        for _ in range(60):
            self.turn(nodes, verifiers)
            decided = all(unit.status in UNIT_DECIDED for unit in self.units(job_id) if unit.uploaded_at)
            pending = [intent for intent in self.sent() if intent.status not in ("final", "reverted")]
            if decided and not pending and all(slash.tx for slash in self.slashes()):
                return
        raise AssertionError([(u.slot, u.status, u.reason) for u in self.units(job_id)])

    def sent(self, account: str = MARKET.address) -> list[TxIntent]:
        return self.all(select(TxIntent).where(TxIntent.account == account).order_by(TxIntent.id))

    def check_books(self) -> None:
        """Check that the ledger equals the chain."""
        found = reconcile(self.database, self.deployed.client(), self.deployed.deployment)
        assert found.difference_wei == 0, found.as_json()

    def record(self, job_id: str) -> JobRecord:
        """Return the job's record as it is now."""
        record: JobRecord = self.call(lambda one: build_record(one, DEVNET, jobs_service.get(one, job_id), None))
        return record

    def challenges(self) -> list[Challenge]:
        return self.all(select(Challenge).order_by(Challenge.unit_id))

    def count_sent_by(self, address: str) -> int:
        return int(self.deployed.anvil.rpc("eth_getTransactionCount", address, "latest"), 16)


@pytest.fixture(name="live")
def world_with_quorum(live_of: LiveMaker) -> QuorumWorld:
    world: QuorumWorld = live_of(QuorumWorld)
    world.give_account()
    return world


@pytest.fixture(name="with_referees")
def listed_referees(live: QuorumWorld) -> None:
    live.referees_here = live.referees()
    live.step()
