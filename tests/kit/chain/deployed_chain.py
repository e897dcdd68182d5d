"""A chain with the five contracts on it, and the market's ways to use it."""

import itertools
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from eth_account import Account
from pydantic import SecretStr

from kit.chain.anvil import CHAIN_ID, MNEMONIC, AnvilProcess
from kit.waiting import drain
from market.chain.contracts.codec import Deployment, encode_call
from market.chain.contracts.deploy import Roles, deploy
from market.chain.indexer import EventHandlers, Indexer
from market.chain.models import TxIntent
from market.chain.rpc.client import ChainClient
from market.chain.service import intent_by_key, queue_intent
from market.chain.transactions.sender import IntentHandlers, Sender
from market.chain.transactions.signer import Signer
from market.chain.views import ChainViews
from market.domain.network import DEVNET, ZEN, NetworkParameters
from market.ledger import chain_events as ledger_chain_events
from market.platform.db.session import Database
from market.settings import Settings
from zoo_protocol.messages import Domain, JobOrder, sign, struct_hash, typed_data


@dataclass(frozen=True)
class Wallet:
    address: str
    key: str


@cache
def wallet(index: int) -> Wallet:
    Account.enable_unaudited_hdwallet_features()
    account = Account.from_mnemonic(MNEMONIC, account_path=f"m/44'/60'/0'/0/{index}")
    return Wallet(account.address, "0x" + bytes(account.key).hex())


OPERATOR, PAYER, PROVIDER, OTHER, ADMIN, ACKNOWLEDGER = (wallet(index) for index in range(6))
FUNDS = 100_000 * ZEN
BOND = 1_000 * ZEN


def deploy_contracts(anvil: AnvilProcess, network: NetworkParameters = DEVNET) -> Deployment:
    """Deploy the contracts, with ZEN for payer and stakers, and the operator's bond."""
    client = ChainClient(anvil.url, CHAIN_ID)
    roles = Roles(ADMIN.address, OPERATOR.address, ADMIN.address, ACKNOWLEDGER.address)
    funded = {account.address: FUNDS for account in (PAYER, PROVIDER, OTHER)}
    return deploy(client, OPERATOR.key, network, roles, funded, BOND)


def chain_settings(anvil: AnvilProcess, deployment: Deployment, directory: Path) -> Settings:
    file = directory / "deployment.json"
    deployment.save(file)
    return Settings(
        database_url="postgresql://unused",
        redis_url="redis://unused",
        rpc_url=anvil.url,
        ipfs_api="http://unused",
        gateway_url="http://unused",
        deployment_file=str(file),
        operator_key=SecretStr(OPERATOR.key),
        acknowledger_key=SecretStr(ACKNOWLEDGER.key),
    )


def deploy_own(anvil: AnvilProcess, directory: Path, network: NetworkParameters = DEVNET, *, depth: int = 3) -> "Chain":
    """Return a chain of one test with the network's contracts ``depth`` blocks deep."""
    deployment = deploy_contracts(anvil, network)
    anvil.mine(depth)
    return Chain(anvil, deployment, chain_settings(anvil, deployment, directory))


PAYEE = "0x00000000000000000000000000000000000000AA"


def queue_payment(database: Database, key: str = "pay", amount: int = 5) -> None:
    """Queue a plain transfer of wei; only the sender prevents a second payment."""
    with database.transaction() as session:
        queue_intent(
            session,
            key=key,
            kind="payment",
            subject=PAYEE,
            contract="ZenToken",
            function="transfer",
            arguments=[PAYEE, amount],
            amount=amount,
        )


def intent(database: Database, key: str = "pay") -> TxIntent:
    with database.transaction() as session:
        found = intent_by_key(session, key)
    assert found is not None
    return found


@dataclass
class Chain:
    """One test's chain, reverted afterwards."""

    anvil: AnvilProcess
    deployment: Deployment
    settings: Settings
    order_nonces: Any = field(default_factory=itertools.count)

    def client(self, url: str | None = None) -> ChainClient:
        return ChainClient(url or self.anvil.url, CHAIN_ID)

    @property
    def views(self) -> ChainViews:
        return ChainViews(self.client(), self.deployment)

    def sender(self, database: Database, handlers: IntentHandlers | None = None, url: str | None = None) -> Sender:
        return Sender(
            database, self.client(url), self.deployment, Signer(SecretStr(OPERATOR.key)), self.settings, handlers or {}
        )

    def indexer(self, database: Database, handlers: EventHandlers | None = None, url: str | None = None) -> Indexer:
        found = self.mirror() if handlers is None else handlers
        return Indexer(database, self.client(url), self.deployment, found)

    def mirror(self) -> EventHandlers:
        return {event: [handler] for event, handler in ledger_chain_events.handlers(self.deployment).items()}

    def index(self, database: Database, handlers: EventHandlers | None = None) -> None:
        indexer = self.indexer(database, handlers)
        drain(indexer)

    def send(self, sender: Wallet, contract: str, function: str, *arguments: Any) -> str:
        """Send a transaction; return its hash."""
        call = {
            "from": sender.address,
            "to": self.deployment.address(contract),
            "data": "0x" + encode_call(contract, function, arguments).hex(),
            "gas": hex(1_000_000),
        }
        return self.anvil.send(call)

    def stake(self, staker: Wallet, amount: int) -> None:
        self.send(staker, "ZenToken", "approve", self.deployment.address("ProviderStaking"), amount)
        self.send(staker, "ProviderStaking", "stake", amount)

    def deposit(self, payer: Wallet, amount: int) -> None:
        """Add to the payer's balance in the escrow, by an allowance."""
        self.send(payer, "ZenToken", "approve", self.deployment.address("JobEscrow"), amount)
        self.send(payer, "JobEscrow", "deposit", payer.address, amount, 0, 0, bytes(32), bytes(32))

    def order(self, budget: int, units: int = 10, segments: int = 4) -> tuple[str, list[Any]]:
        """Deposit the budget; return id and openJob arguments of the payer's Bronze job.

        A unit is a GPU-second.
        """
        self.deposit(PAYER, budget)
        now = self.client().head().timestamp
        order = JobOrder(
            payer=PAYER.address,
            specHash="0x" + "ab" * 32,
            tier=1,
            units=units,
            unitWeight=1_000_000,
            segments=segments,
            samplingBps=200,
            budget=budget,
            maxPrice=4 * ZEN,
            waitUntil=now + 3_600,
            nonce=next(self.order_nonces),
        )
        escrow = self.deployment.address("JobEscrow")
        signature = sign(PAYER.key, typed_data(Domain(CHAIN_ID, escrow), order))
        fields = {name: getattr(order, name) for name in order.__slots__}
        return struct_hash(order), [fields, signature]
