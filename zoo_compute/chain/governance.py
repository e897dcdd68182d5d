"""Acts of treasury, admin and guardian on chain, and what waits for its countdown there."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from zoo_compute.base.errors import Unreachable, ZooError
from zoo_compute.chain import log_search
from zoo_compute.chain.transactions import Chain
from zoo_compute.chain.wallet import chain_errors, checked_address
from zoo_protocol.acts.calls import TIMELOCK, Call, Contracts, Operation, PreparedAct
from zoo_protocol.acts.simulation import Simulation, simulate
from zoo_protocol.acts.veto import veto_arguments
from zoo_protocol.contracts import artifact
from zoo_protocol.hashing import from_hex, to_hex

_FINAL_SECONDS = 3600.0  # on a main network finality takes about 15 minutes
_POLL_SECONDS = 1.0
_NO_SALT = to_hex(bytes(32))


@dataclass(frozen=True, slots=True)
class PayoutLine:
    """A job's line of a batch: units and wei."""

    job_id: str
    units: int
    paid_wei: int


@dataclass(frozen=True, slots=True)
class ChallengedPayout:
    """Batch or reward epoch under its countdown, as the chain has it. Unix seconds, wei.

    Attributes:
        kind: ``batch`` or ``epoch``.
        net_wei: to providers; of an epoch, the market's record has the amount.
    """

    kind: str
    number: int
    root: str
    claimable_at: int
    net_wei: int | None
    lines: tuple[PayoutLine, ...] = ()


class GovernanceChain:
    """The network's contracts without a wallet: reads, simulations, searches of events.

    Args:
        start_block: block of the deployment, where searches start.
    """

    def __init__(self, rpc_url: str, contracts: Mapping[str, str], start_block: int) -> None:
        from web3 import HTTPProvider, Web3

        self._web3 = Web3(HTTPProvider(rpc_url, request_kwargs={"timeout": 30}))
        self._start = start_block
        self._addresses = {name: checked_address(address) for name, address in contracts.items()}

    @cached_property
    def contracts(self) -> Contracts:
        """Addresses, chain id, and the timelock's present delay."""
        with chain_errors():
            delay = self._contract(TIMELOCK).functions.getMinDelay().call()
            return Contracts(self._web3.eth.chain_id, self._addresses, int(delay))

    def simulate(self, prepared: PreparedAct, sender: str) -> Simulation:
        """Simulate an act from an account. Raises Unreachable."""
        return simulate(prepared, sender, self.contracts, self._refusal)

    def parameters(self) -> dict[str, int]:
        """Return the parameters that acts of the table change, in bps, wei and seconds."""
        staking, escrow = self._contract("ProviderStaking").functions, self._contract("JobEscrow").functions
        with chain_errors():
            found = {
                "fee_bps": escrow.feeBps().call(),
                "rewards_bps": self._contract("Rewards").functions.apyBps().call(),
                "timelock_seconds": self.contracts.delay_seconds,
            }
            for tier in range(5):
                found[f"minimum_stake_{tier}_wei"] = staking.minimumStake(tier).call()
            for offence in range(1, 8):
                penalty = staking.penalty(offence).call()
                found[f"penalty_{offence}_bps"], found[f"penalty_{offence}_dispute_share_bps"] = penalty
        return {name: int(value) for name, value in found.items()}

    def operation(self, operation_id: str) -> Operation:
        """Return a scheduled operation from the timelock's events.

        Raises:
            ZooError: the id is malformed or unknown.
        """
        try:
            wanted = {"id": from_hex(operation_id)}
        except ValueError as error:
            remedy = "Run: zoo-compute treasury show"
            raise ZooError("operation-malformed", f"the operation's id is malformed: {error}", remedy=remedy) from error
        scheduled = self._events(TIMELOCK, "CallScheduled", self._start, wanted)
        if not scheduled:
            raise ZooError("operation-not-found", f"the timelock has no operation {operation_id}")
        last = scheduled[-1]["transactionHash"]  # a cancelled operation can be scheduled again
        made = [event["args"] for event in scheduled if event["transactionHash"] == last]
        salts = self._events(TIMELOCK, "CallSalt", self._start, wanted)
        salt = to_hex(salts[-1]["args"]["salt"]) if salts else _NO_SALT
        calls = tuple(Call(one["target"], one["value"], bytes(one["data"])) for one in made)
        predecessor = to_hex(made[0]["predecessor"])
        single = Operation(calls[:1], salt, predecessor)
        return single if single.id == to_hex(wanted["id"]) else Operation(calls, salt, predecessor, is_batch=True)

    def challenged_payouts(self) -> list[ChallengedPayout]:
        """Return batches and the reward epoch whose countdown runs, the next to end first."""
        escrow, rewards = self._contract("JobEscrow"), self._contract("Rewards")
        with chain_errors():
            now = self._web3.eth.get_block("latest")["timestamp"]
            period = escrow.functions.challengePeriod().call()
            first = self._block_at(now - period)
            posted = self._events("JobEscrow", "BatchPosted", first, {})
            epoch, claimable_at = rewards.functions.pendingEpoch().call()
            running = [
                event["args"]
                for event in posted
                if event["args"]["claimableAt"] > now
                and escrow.functions.batches(event["args"]["root"]).call()[3] == event["args"]["batchId"]
            ]
        found = [
            ChallengedPayout(
                "batch",
                args["batchId"],
                to_hex(args["root"]),
                args["claimableAt"],
                args["net"],
                self._lines(args, first),
            )
            for args in running
        ]
        if epoch[3]:
            found.append(ChallengedPayout("epoch", int(epoch[3]), to_hex(epoch[0]), int(claimable_at), None))
        return sorted(found, key=lambda one: (one.claimable_at, one.kind, one.number))

    def veto_arguments(self, number: int) -> dict[str, object]:
        """Return the arguments of a batch's veto, from the transaction that posted it.

        Raises:
            ZooError: the chain has no such batch, or the transaction has no settlement of it.
        """
        found = self._events("JobEscrow", "BatchPosted", self._start, {"batchId": number})
        if not found:
            raise ZooError(
                "batch-not-found", f"the chain has no batch {number}", remedy="Run: zoo-compute guardian watch"
            )
        with chain_errors():
            data = bytes(self._web3.eth.get_transaction(found[-1]["transactionHash"])["input"])
        arguments = veto_arguments(number, to_hex(found[-1]["args"]["root"]), data)
        if arguments is None:
            tx = to_hex(found[-1]["transactionHash"])
            raise ZooError("settlement-not-found", f"transaction {tx} has no settlement of batch {number}")
        return arguments

    def _lines(self, args: Mapping[str, Any], first: int) -> tuple[PayoutLine, ...]:
        events = self._events("JobEscrow", "JobSettled", first, {"batchId": args["batchId"]})
        return tuple(
            PayoutLine(to_hex(one["args"]["jobId"]), one["args"]["units"], one["args"]["paid"]) for one in events
        )

    def _block_at(self, timestamp: int) -> int:
        """Return the first block from the deployment on that is not older than a Unix time."""
        low, high = self._start, int(self._web3.eth.block_number)
        while low < high:
            middle = (low + high) // 2
            if self._web3.eth.get_block(middle)["timestamp"] < timestamp:
                low = middle + 1
            else:
                high = middle
        return low

    def _refusal(self, sender: str, to: str, data: bytes) -> bytes | None:
        from web3.exceptions import ContractLogicError

        with chain_errors():
            try:
                self._web3.eth.call({"from": checked_address(sender), "to": checked_address(to), "data": to_hex(data)})  # type: ignore[typeddict-item]
            except ContractLogicError as error:
                text = error.data if isinstance(error.data, str) else ""
                return bytes.fromhex(text[2:]) if re.fullmatch("0x([0-9a-fA-F]{2})*", text) else b""
        return None

    def _events(self, contract: str, name: str, first: int, filters: Mapping[str, Any]) -> list[Any]:
        with chain_errors():
            event = self._contract(contract).events[name]()
            return log_search.all_events(event, filters, first, self._web3.eth.block_number)

    def _contract(self, name: str) -> Any:
        return self._web3.eth.contract(address=self._addresses[name], abi=artifact(name).abi)  # type: ignore[call-overload]


class ActSender(Chain):
    """Signs and sends prepared acts with a wallet."""

    def send(self, prepared: PreparedAct) -> str:
        """Send an act; return the mined transaction's hash. Raises ZooError."""
        function, arguments = self._contract(prepared.contract).decode_function_input(prepared.data)
        return self._send(function(**arguments))

    def wait_final(self, tx_hash: str) -> int:
        """Wait until a mined transaction is final; return its block.

        Raises:
            ZooError: a reorganisation removed it.
            Unreachable: it is not final within an hour.
        """
        deadline = time.monotonic() + _FINAL_SECONDS
        while time.monotonic() < deadline:
            with chain_errors():
                receipt = self._web3.eth.get_transaction_receipt(tx_hash)  # type: ignore[arg-type]
            if receipt["status"] != 1:
                raise ZooError("transaction-reverted", f"{tx_hash} reverted after a reorganisation")
            if receipt["blockNumber"] <= self.final_block().number:
                return int(receipt["blockNumber"])
            time.sleep(_POLL_SECONDS)
        raise Unreachable("not-final", f"{tx_hash} is mined, but not final after an hour", remedy="Check the chain.")
