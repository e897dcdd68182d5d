"""Disputes to their end: served states, staked referees, keeper and contract."""

from typing import Any

import pytest
from sqlalchemy import update

from kit.chain.deployed_chain import OTHER, Wallet, wallet
from kit.disputes.dispute_fixtures import TERMS, ZEN, Delivered, DisputeWorld
from kit.verification.live_fixtures import CHEAT_ACCOUNT, HONEST_ACCOUNT, LiveMaker, Node
from kit.waiting import drain
from market.chain.contracts.codec import decode_result, encode_call
from market.chain.models import TxIntent
from market.domain.network import DEVNET
from market.payments.settlement import dispute_keeper
from market.providers.models import Provider
from market.verification.disputes.models import Dispute as DisputeRow
from zoo_compute.chain.disputes import DisputePhase, Opened
from zoo_compute.chain.referees import RefereeChain
from zoo_compute.chain.settlements import ChainReader
from zoo_compute.chain.wallet import Wallet as NodeWallet
from zoo_compute.client.http import Connection
from zoo_compute.content.gateway import GatewayClient
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.disputes.disclosure import Disclosure
from zoo_compute.node.disputes.referee import Referee, Verdicts
from zoo_compute.node.disputes.segment_verdict import ReplayContext
from zoo_compute.node.execution.executor import Executor
from zoo_compute.node.market.calls import Market

REFEREES = [wallet(index) for index in range(20, 26)]


class RefereeWorld(DisputeWorld):
    """Nodes reach the market at ``api_url``; its dispatcher is ``keep``."""

    def enlist(self) -> None:
        """Register six staked verifiers; each lists itself in the contract at its first look."""
        for account in REFEREES:
            self.deployed.anvil.rpc("anvil_impersonateAccount", account.address)
            self.deployed.anvil.rpc("anvil_setBalance", account.address, hex(ZEN))
            self.deployed.send(OTHER, "ZenToken", "transfer", account.address, 500 * ZEN)
            self.deployed.stake(account, 500 * ZEN)

    def referee(
        self, account: Wallet, executor: Any = None, *, environment: str = "", url: str = "", owner: str | None = None
    ) -> Referee:
        executor = executor or self.executor
        workspace = Workspace(self.directory / account.address)
        contracts, rpc = self.deployed.deployment.contracts, self.deployed.anvil.url
        known, gateway = NodeWallet(account.key), GatewayClient([self.gateway], attempts=1)
        bench = ReplayContext(
            workspace, gateway, environment or executor.environment_class, lambda task: executor.run(task, 120.0)
        )
        return Referee(
            Verdicts(workspace.verdicts),
            lambda: RefereeChain(rpc, contracts, known),
            lambda: ChainReader(rpc, contracts),
            self.market(account, url),
            lambda: bench,
            known,
            owner,
        )

    def referees(self) -> list[Referee]:
        self.enlist()
        found = [self.referee(account) for account in REFEREES]
        for one in found:
            one.watch()
        return found

    def declare_owner(self, address: str, owner: str) -> None:
        self.execute(update(Provider).where(Provider.address == address).values(owner=owner))

    def market(self, account: Wallet | Node, url: str | None = None) -> Market:
        """The market as a node reaches it."""
        return Market(Connection(url or self.api_url, wallet=NodeWallet(account.key), retry_seconds=0.1))

    def discloser(self, node: Node) -> Disclosure:
        workspace = Workspace(self.directory / node.address)
        gateway = GatewayClient([self.gateway], attempts=1)
        return Disclosure(self.watch_of(node), workspace, self.market(node), gateway, node.executor)

    def named(self, challenger: Wallet, delivered: Delivered, node: Node, step: int) -> Opened:
        opened = self.dispute(challenger, delivered)
        self.watch_of(node).watch()
        self.chain_of(challenger).name_step(opened.dispute_id, step)
        self.keep()
        return opened

    def keep(self) -> None:
        """Index final events and process due work."""
        self.follow()
        dispute_keeper.queue_due_calls(self.database, DEVNET, self.deployed.views)
        drain(self._sender)
        self.follow()

    def follow(self) -> None:
        self.deployed.anvil.mine(4)
        drain(self._sender)
        drain(self._indexer)

    def judged(self, opened: Opened, referees: list[Referee]) -> DisputePhase:
        """Draw the committee and send its verdicts; return the dispute."""
        self.keep()
        for referee in referees:
            referee.watch()
        self.keep()
        return self.state(opened).phase

    def pass_time(self, seconds: int) -> None:
        self.deployed.anvil.rpc("evm_increaseTime", seconds)
        self.deployed.anvil.mine()

    def pass_patience(self) -> None:
        self.pass_time(TERMS.verdict_seconds // 2 + 60)

    def row(self, opened: Opened) -> DisputeRow:
        with self.database.transaction() as session:
            found = session.get_one(DisputeRow, opened.dispute_id)
            session.expunge(found)
            return found

    def calls(self, function: str) -> list[str]:
        with self.database.transaction() as session:
            found = session.query(TxIntent).filter(TxIntent.kind == "keep_dispute", TxIntent.function == function)
            return [intent.status for intent in found.order_by(TxIntent.id)]

    def withhold(self, delivered: Delivered) -> int:
        """Settle the unit while its dispute holds the pay; return the net pay in wei."""
        self.settle(delivered)
        unit = {name: getattr(delivered.unit, name) for name in delivered.unit.__slots__}
        # On a slow machine the four seconds of the challenge period would be over.
        self.deployed.anvil.rpc("evm_setNextBlockTimestamp", self.deployed.client().head().timestamp + 1)
        self.transact(OTHER, "Disputes", "withhold", unit, 1, self.settled.price, self.settled_proof)
        return self.withheld_of(delivered)

    def withheld_of(self, delivered: Delivered) -> int:
        data = encode_call("JobEscrow", "withheldOf", [1, delivered.unit.provider])
        found = self.deployed.views.client.call(self.deployed.deployment.address("JobEscrow"), data)
        return int(decode_result("JobEscrow", "withheldOf", found))


@pytest.fixture(name="live")
def world_of_referees(live_of: LiveMaker) -> RefereeWorld:
    world: RefereeWorld = live_of(RefereeWorld)
    return world


def provider(live: RefereeWorld, account: Any, executor: Executor | None = None) -> Node:
    live.deployed.anvil.rpc("anvil_setBalance", account.address, hex(ZEN))
    return live.provider_node(account, executor)


@pytest.fixture(name="honest")
def honest_node(live: RefereeWorld) -> Node:
    return provider(live, HONEST_ACCOUNT)


@pytest.fixture(name="cheat")
def cheating_node(live: RefereeWorld, cheating: Executor) -> Node:
    return provider(live, CHEAT_ACCOUNT, cheating)


@pytest.fixture(name="verifiers")
def two_verifiers(live: RefereeWorld) -> list[Node]:
    return [live.verifier_node() for _ in range(2)]


@pytest.fixture(name="unit")
def honest_unit(live: RefereeWorld, honest: Node) -> Delivered:
    return live.delivered(honest)
