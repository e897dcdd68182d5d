"""Events and state of one job, read from any RPC node."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hexbytes import HexBytes
from web3 import HTTPProvider, Web3
from web3.contract import Contract
from web3.logs import DISCARD
from web3.types import EventData, TxReceipt

from zoo_compute.base.errors import CodedError
from zoo_compute.chain import log_search
from zoo_protocol.contracts import artifact
from zoo_protocol.hashing import from_hex, to_hex
from zoo_protocol.messages import UnitCommitment
from zoo_protocol.payments.job_record import leaf_of
from zoo_protocol.payments.receipt import JobSettlement, Opened, Settled, Slashed

_PROVIDER_LOST = 5  # IDisputes.Status
UNPAID_OUTCOMES = frozenset({_PROVIDER_LOST, 7})
"""Outcomes of disputes after which a unit is not paid: upheld and inconclusive."""
ACQUITTED = 6
"""Outcome of a dispute whose committee found the provider correct."""
FALSE_WORK = frozenset({2, 4, 7})
"""Offences of units: wrong, withheld and refused (rows of ProviderStaking's table)."""

DISPUTE_EVENTS = (
    "DisputeOpened",
    "TraceShown",
    "StepNamed",
    "CommitteeDrawn",
    "VerdictGiven",
    "Credited",
    "DisputeEnded",
)
"""Events that describe the course of a dispute."""


class ChainDisagrees(CodedError):
    """The chain lacks an event that a receipt requires."""


@dataclass(frozen=True, slots=True)
class Posted:
    """Posted settlement batch; amounts in wei.

    Attributes:
        claimed: amount by provider.
        withheld: amount held by disputes at the time of the claim, by provider.
        fee_collected: part of the fee that was collected.
    """

    root: str
    net: int
    fee: int
    claimed: Mapping[str, int]
    withheld: Mapping[str, int]
    fee_collected: int


@dataclass(frozen=True, slots=True)
class WindowOnChain:
    """Committed root and its sampling seed; None before the seed is recorded."""

    root: str
    leaf_count: int
    seed: str | None
    block: int = 0


@dataclass(frozen=True, slots=True)
class Penalty:
    """Event Slashed of a provider, by the row of its offence."""

    provider: str
    offence: int
    evidence: str
    block: int


@dataclass(frozen=True, slots=True)
class AttestedOnChain:
    """Last attestation of a provider, times in Unix seconds; ``counts`` as of now."""

    key: str
    measurement: str
    expires_at: int
    report: str
    at: int
    counts: bool


class ChainReader:
    """Reader of the network's events and state on one RPC node.

    Args:
        rpc_url: any node of the chain.
        contracts: addresses by contract name (ZenToken, Treasury, ProviderStaking, WorkWindows, JobEscrow).
        start_block: block of the deployment, where searches start.
    """

    def __init__(self, rpc_url: str, contracts: Mapping[str, str], start_block: int = 0) -> None:
        self._web3 = Web3(HTTPProvider(rpc_url, request_kwargs={"timeout": 30}))
        self._start = start_block
        self._contracts: dict[str, Contract] = {
            name: self._web3.eth.contract(address=Web3.to_checksum_address(address), abi=artifact(name).abi)
            for name, address in contracts.items()
        }

    @cached_property
    def chain_id(self) -> int:
        return int(self._web3.eth.chain_id)

    def address(self, contract: str) -> str:
        return str(self._contracts[contract].address)

    def opened(self, job_id: str) -> Opened:
        """Return the job's deposit. Raises ChainDisagrees: ``not_opened``."""
        event = self._only("JobEscrow", "JobOpened", "not_opened", jobId=from_hex(job_id))
        return Opened.from_event(log_search.plain(event["args"]), to_hex(event["transactionHash"]))

    def settlement(self, job_id: str) -> JobSettlement:
        """Return a job's settlement if it is complete. Vetoed settlements do not count.

        Raises:
            ChainDisagrees: ``not_settled`` if part of its budget is in escrow, or nothing was settled.
        """
        found = self.settled(job_id)
        if found.last is None:
            raise ChainDisagrees("not_settled", f"job {job_id} is not settled completely")
        return found

    def settled(self, job_id: str) -> JobSettlement:
        """Return a job's settlement so far. Vetoed settlements do not count.

        The search goes back from the newest block to the job's deposit.
        """
        opened = self._newest("JobEscrow", "JobOpened", jobId=from_hex(job_id))
        since = None if opened is None else int(opened["blockNumber"])
        names = ("JobSettled", "SettlementReverted", "JobRefunded", "UnitStruck") if opened is not None else ()
        events = [event for name in names for event in self._events("JobEscrow", name, since, jobId=from_hex(job_id))]
        events.sort(key=lambda event: (event["blockNumber"], event["logIndex"]))
        return JobSettlement.from_events(
            (event["event"], log_search.plain(event["args"]), to_hex(event["transactionHash"])) for event in events
        )

    def settled_with(self, part: Settled) -> list[tuple[str, Settled]]:
        """Return (job id, line) of everything settled in the same transaction, in its order."""
        events = (
            self._contracts["JobEscrow"].events.JobSettled().process_receipt(self._receipt(part.tx), errors=DISCARD)
        )
        lines = (log_search.plain(event["args"]) for event in events)
        return [(args["jobId"], Settled.from_event(args, part.tx)) for args in lines]

    def transfers(self, part: Settled) -> Mapping[str, int]:
        """Return by recipient the ZEN that left the escrow in the settlement's transaction."""
        moved = self._contracts["ZenToken"].events.Transfer().process_receipt(self._receipt(part.tx), errors=DISCARD)
        transfers: Counter[str] = Counter()
        for transfer in moved:
            if transfer["args"]["from"] == self.address("JobEscrow"):
                transfers[transfer["args"]["to"]] += transfer["args"]["value"]
        return transfers

    def batch(self, batch_id: int) -> Posted:
        """Return a settlement batch. Raises ChainDisagrees: ``no_batch``."""
        posted = self._only("JobEscrow", "BatchPosted", "no_batch", batchId=batch_id)["args"]
        claims = self._events("JobEscrow", "Claimed", batchId=batch_id)
        withheld = self._events("JobEscrow", "UnitWithheld", batchId=batch_id)
        restored = self._events("JobEscrow", "UnitRestored", batchId=batch_id) if withheld else []
        fees = self._events("JobEscrow", "FeesCollected", batchId=batch_id)
        return Posted(
            root=to_hex(posted["root"]),
            net=posted["net"],
            fee=posted["fee"],
            claimed={event["args"]["provider"]: event["args"]["amount"] for event in claims},
            withheld={event["args"]["provider"]: _withheld(event, withheld, restored) for event in claims},
            fee_collected=sum(event["args"]["amount"] for event in fees),
        )

    def deposited(self, opened: Opened) -> int:
        """Return the ZEN that the payer's balance left for the job, at most its budget, wei."""
        last = self._receipt(opened.tx)["blockNumber"]

        def total(event: str, amount: str) -> int:
            found = self._events("JobEscrow", event, payer=opened.payer)
            return sum(e["args"][amount] for e in found if e["blockNumber"] <= last)

        others = total("JobOpened", "budget") - opened.budget
        return min(opened.budget, total("Deposited", "amount") - total("Withdrawn", "amount") - others)

    def window(self, window_id: int) -> WindowOnChain:
        """Return root and seed of a committed window. Raises ChainDisagrees: ``no_window``."""
        event = self._only("WorkWindows", "WindowCommitted", "no_window", id=window_id)
        latched = self._events("WorkWindows", "SeedLatched", id=window_id)
        seed = to_hex(latched[0]["args"]["seed"]) if latched else None
        return WindowOnChain(to_hex(event["args"]["root"]), event["args"]["leafCount"], seed, event["blockNumber"])

    def slash(self, evidence: str, offence: str) -> Slashed:
        """Return the penalty on this evidence; ``offence`` is its name in the table.

        Raises:
            ChainDisagrees: ``not_slashed`` unless there is exactly one.
        """
        event = self._only("ProviderStaking", "Slashed", "not_slashed", evidence=from_hex(evidence))
        found = event["args"]
        return Slashed(found["provider"], offence, found["amount"], to_hex(event["transactionHash"]))

    def attested(self, provider: str) -> AttestedOnChain | None:
        """Return the last attestation of a provider; None if there is none."""
        event = self._newest("Attestations", "Attested", provider=provider)
        if event is None:
            return None
        found = log_search.plain(event["args"])
        return AttestedOnChain(
            key=found["key"],
            measurement=found["measurement"],
            expires_at=found["expiresAt"],
            report=found["report"],
            at=int(self._web3.eth.get_block(event["blockNumber"])["timestamp"]),
            counts=bool(self._contracts["Attestations"].functions.isAttested(provider).call()),
        )

    def was_attested(self, provider: str, block: int) -> bool:
        """Return True if the provider had a valid attestation at ``block``."""
        events = self._events("Attestations", "Attested", provider=provider)
        ends = [event["args"]["expiresAt"] for event in events if event["blockNumber"] <= block]
        return bool(ends) and max(ends) > self._web3.eth.get_block(block)["timestamp"]

    def penalties(self) -> list[Penalty]:
        """Return all penalties in chain order."""
        return [
            Penalty(args["provider"], args["offence"], to_hex(args["evidence"]), event["blockNumber"])
            for event in self._events("ProviderStaking", "Slashed")
            for args in [event["args"]]
        ]

    def lines(self) -> list[tuple[int, str, Settled]]:
        """Return (block, job, line) of all settlements, vetoed ones too, newest first."""
        found = self._events("JobEscrow", "JobSettled")
        plain = [(e["blockNumber"], log_search.plain(e["args"]), to_hex(e["transactionHash"])) for e in found]
        return [(block, args["jobId"], Settled.from_event(args, tx)) for block, args, tx in reversed(plain)]

    def staked_since(self, verifier: str) -> int | None:
        """Return the block of an account's first stake; None if it never staked."""
        staked = self._events("ProviderStaking", "Staked", provider=verifier)
        return int(staked[0]["blockNumber"]) if staked else None

    def block_of(self, tx: str) -> int:
        return int(self._receipt(tx)["blockNumber"])

    def dispute_outcomes(self, unit_key: str) -> set[int]:
        """Return the outcomes (IDisputes.Status) of the ended disputes of a unit."""
        return {
            event["args"]["outcome"] for event in self._events("Disputes", "DisputeEnded", unitId=from_hex(unit_key))
        }

    def disputed_unit(self, dispute_id: str) -> UnitCommitment | None:
        """Return a dispute's unit; None if it was not opened directly or in one multicall."""
        event = self._newest("Disputes", "DisputeOpened", disputeId=from_hex(dispute_id))
        if event is None:
            return None
        call = self._web3.eth.get_transaction(event["transactionHash"])["input"]
        for arguments in log_search.opening_calls(self._contracts["Disputes"], call):
            unit = UnitCommitment(**log_search.plain(arguments["unit"]))
            if leaf_of(unit) == event["args"]["unitId"]:
                return unit
        return None

    def stake_of(self, provider: str) -> int:
        """Return the stake of a provider or verifier without its unbonding ZEN, wei."""
        return int(self._contracts["ProviderStaking"].functions.stakeOf(provider).call())

    def window_tx(self, root: str) -> str:
        """Return the transaction that committed this root's window. Raises ChainDisagrees."""
        event = self._only("WorkWindows", "WindowCommitted", "no_window", root=from_hex(root))
        return to_hex(event["transactionHash"])

    def disputable_until(self, root: str) -> int:
        """Return the end of this root's dispute period, Unix seconds. Raises ChainDisagrees."""
        _, _, _, committed_at, _ = self._contracts["WorkWindows"].functions.windows(from_hex(root)).call()
        if not committed_at:
            raise ChainDisagrees("no_window", f"no window with the root {root} was committed")
        return int(committed_at) + int(self._contracts["Disputes"].functions.terms().call()[3])

    def now(self) -> int:
        """Return the time of the newest block, Unix seconds."""
        return int(self._web3.eth.get_block("latest")["timestamp"])

    def dispute_bond(self) -> int:
        return int(self._contracts["Disputes"].functions.terms().call()[0])

    def dispute_events(self, dispute_id: str) -> list[tuple[str, Mapping[str, Any], str]]:
        """Return (event, arguments, transaction) of a dispute's events in chain order."""
        events = [
            event for name in DISPUTE_EVENTS for event in self._events("Disputes", name, disputeId=from_hex(dispute_id))
        ]
        events.sort(key=lambda event: (event["blockNumber"], event["logIndex"]))
        return [(event["event"], log_search.plain(event["args"]), to_hex(event["transactionHash"])) for event in events]

    def upheld_dispute(self, dispute_id: str) -> tuple[str, str]:
        """Return the unit of an upheld dispute and the transaction that ended it; both as 0x hex.

        Raises:
            ChainDisagrees: ``not_convicted`` if the dispute was not upheld.
        """
        event = self._only("Disputes", "DisputeEnded", "not_convicted", disputeId=from_hex(dispute_id))
        if event["args"]["outcome"] != _PROVIDER_LOST:
            raise ChainDisagrees("not_convicted", f"dispute {dispute_id} did not end against the provider")
        return to_hex(event["args"]["unitId"]), to_hex(event["transactionHash"])

    def treasury_balance(self) -> int:
        return int(self._contracts["ZenToken"].functions.balanceOf(self.address("Treasury")).call())

    def _receipt(self, tx: str) -> TxReceipt:
        return self._web3.eth.get_transaction_receipt(HexBytes(tx))

    def _events(self, contract: str, name: str, since: int | None = None, **filters: Any) -> list[EventData]:
        first = self._start if since is None else since
        return log_search.all_events(self._event(contract, name), filters, first, self._web3.eth.block_number)

    def _newest(self, contract: str, name: str, **filters: Any) -> EventData | None:
        found: EventData | None = log_search.newest(
            self._event(contract, name), filters, self._start, self._web3.eth.block_number
        )
        return found

    def _event(self, contract: str, name: str) -> Any:
        return self._contracts[contract].events[name]()

    def _only(self, contract: str, name: str, code: str, **filters: Any) -> EventData:
        events = self._events(contract, name, **filters)
        if len(events) != 1:
            raise ChainDisagrees(code, f"{contract} has {len(events)} {name} events for {filters}; one was expected")
        return events[0]


def _withheld(claim: EventData, withheld: Sequence[EventData], restored: Sequence[EventData]) -> int:
    """Return a claim's amount held by disputes: units not restored to their batch by then."""
    mine = [event["args"] for event in withheld if event["args"]["provider"] == claim["args"]["provider"]]
    units = {args["unitId"] for args in mine}
    back = [event["args"] for event in restored if not event["args"]["paidOut"] and event["args"]["unitId"] in units]
    return sum(int(args["net"]) for args in mine) - sum(int(args["net"]) for args in back)
