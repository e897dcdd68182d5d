"""What the chain alone says about one job: read from any RPC node, without the market."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from web3 import HTTPProvider, Web3
from web3.contract import Contract
from web3.logs import DISCARD
from web3.types import EventData

from zoo_protocol.contracts import artifact
from zoo_protocol.hashing import from_hex, to_hex


class ChainDisagrees(Exception):
    """The chain does not hold what a receipt needs; ``code`` is stable."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Opened:
    """The deposit of a job, amounts in wei."""

    payer: str
    tier: int
    units: int
    unit_weight: int
    budget: int
    max_price: int
    fee_bps: int
    spec_hash: str
    tx: str


@dataclass(frozen=True, slots=True)
class Settled:
    """The settlement as the contract executed it, amounts in wei."""

    price: int
    paid: int
    fee: int
    refund: int
    units_root: str
    record: bytes
    tx: str
    payments: Mapping[str, tuple[int, int]]
    """provider -> (units, amount)"""
    transfers: Mapping[str, int]
    """ZEN that left the escrow in this transaction, by recipient"""


@dataclass(frozen=True, slots=True)
class WindowOnChain:
    """A committed root and the seed that was latched for it (None: not yet)."""

    root: str
    leaf_count: int
    seed: str | None


@dataclass(frozen=True, slots=True)
class SlashOnChain:
    """A penalty as the staking contract executed it."""

    provider: str
    offence: int
    amount: int
    tx: str


class ChainReader:
    """Reads our contracts' events and state; every answer comes from the given RPC node."""

    def __init__(self, rpc_url: str, contracts: Mapping[str, str], start_block: int = 0) -> None:
        """
        Args:
            rpc_url: any node of the chain.
            contracts: addresses by contract name (ZenToken, Treasury, ProviderStaking, WorkWindows, JobEscrow).
            start_block: first block of the deployment; nothing of ours is older.
        """
        self._web3 = Web3(HTTPProvider(rpc_url, request_kwargs={"timeout": 30}))
        self._start = start_block
        self._contracts: dict[str, Contract] = {
            name: self._web3.eth.contract(address=Web3.to_checksum_address(address), abi=artifact(name).abi)
            for name, address in contracts.items()
        }

    @property
    def chain_id(self) -> int:
        return int(self._web3.eth.chain_id)

    def address(self, contract: str) -> str:
        return str(self._contracts[contract].address)

    def opened(self, job_id: str) -> Opened:
        """The job's deposit.

        Raises:
            ChainDisagrees: ``not_opened`` unless the escrow holds exactly one such event.
        """
        event = self._only("JobEscrow", "JobOpened", "not_opened", jobId=from_hex(job_id))
        found = event["args"]
        return Opened(
            payer=found["payer"],
            tier=found["tier"],
            units=found["units"],
            unit_weight=found["unitWeight"],
            budget=found["budget"],
            max_price=found["maxPrice"],
            fee_bps=found["feeBps"],
            spec_hash=to_hex(found["specHash"]),
            tx=to_hex(event["transactionHash"]),
        )

    def settled(self, job_id: str) -> Settled:
        """The job's settlement with every transfer that it made.

        Raises:
            ChainDisagrees: ``not_settled`` unless the escrow holds exactly one such event.
        """
        event = self._only("JobEscrow", "JobSettled", "not_settled", jobId=from_hex(job_id))
        found = event["args"]
        receipt = self._web3.eth.get_transaction_receipt(event["transactionHash"])
        paid = self._contracts["JobEscrow"].events.ProviderPaid().process_receipt(receipt, errors=DISCARD)
        moved = self._contracts["ZenToken"].events.Transfer().process_receipt(receipt, errors=DISCARD)
        transfers: dict[str, int] = {}
        for transfer in moved:
            if transfer["args"]["from"] == self.address("JobEscrow"):
                recipient = transfer["args"]["to"]
                transfers[recipient] = transfers.get(recipient, 0) + transfer["args"]["value"]
        return Settled(
            price=found["price"],
            paid=found["paid"],
            fee=found["fee"],
            refund=found["refund"],
            units_root=to_hex(found["unitsRoot"]),
            record=bytes(found["record"]),
            tx=to_hex(event["transactionHash"]),
            payments={
                e["args"]["provider"]: (e["args"]["units"], e["args"]["amount"])
                for e in paid
                if to_hex(e["args"]["jobId"]) == job_id
            },
            transfers=transfers,
        )

    def deposited(self, opened: Opened) -> int:
        """ZEN that moved from the payer into the escrow in the opening transaction, wei."""
        receipt = self._web3.eth.get_transaction_receipt(from_hex_tx(opened.tx))
        moved = self._contracts["ZenToken"].events.Transfer().process_receipt(receipt, errors=DISCARD)
        escrow = self.address("JobEscrow")
        return sum(e["args"]["value"] for e in moved if e["args"]["from"] == opened.payer and e["args"]["to"] == escrow)

    def window(self, window_id: int) -> WindowOnChain:
        """Root and seed of a committed window.

        Raises:
            ChainDisagrees: ``no_window`` if no such window was committed.
        """
        event = self._only("WorkWindows", "WindowCommitted", "no_window", id=window_id)
        latched = self._events("WorkWindows", "SeedLatched", id=window_id)
        seed = to_hex(latched[0]["args"]["seed"]) if latched else None
        return WindowOnChain(to_hex(event["args"]["root"]), event["args"]["leafCount"], seed)

    def slash(self, evidence: str) -> SlashOnChain:
        """The penalty that was executed on this evidence.

        Raises:
            ChainDisagrees: ``not_slashed`` unless there is exactly one.
        """
        event = self._only("ProviderStaking", "Slashed", "not_slashed", evidence=from_hex(evidence))
        found = event["args"]
        return SlashOnChain(found["provider"], found["offence"], found["amount"], to_hex(event["transactionHash"]))

    def treasury_balance(self) -> int:
        """ZEN that the treasury holds now, wei."""
        return int(self._contracts["ZenToken"].functions.balanceOf(self.address("Treasury")).call())

    def _events(self, contract: str, name: str, **filters: Any) -> list[EventData]:
        event = self._contracts[contract].events[name]
        return list(event().get_logs(from_block=self._start, argument_filters=filters))

    def _only(self, contract: str, name: str, code: str, **filters: Any) -> EventData:
        events = self._events(contract, name, **filters)
        if len(events) != 1:
            raise ChainDisagrees(code, f"{contract} has {len(events)} {name} events for {filters}; one was expected")
        return events[0]


def from_hex_tx(tx: str) -> Any:
    """A transaction hash in the form that web3 takes."""
    return Web3.to_bytes(hexstr=tx)  # type: ignore[arg-type]  # web3 brands hex strings with a NewType
