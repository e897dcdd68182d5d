"""Calls and queries of a referee: listing, committee seats, and the disputed unit."""

from dataclasses import dataclass

from zoo_compute.base.errors import ZooError
from zoo_compute.chain.disputes import DisputeChain
from zoo_compute.chain.log_search import opening_calls, plain
from zoo_compute.chain.wallet import chain_errors
from zoo_protocol.hashing import to_hex
from zoo_protocol.messages import JobOrder, UnitCommitment
from zoo_protocol.payments.job_record import leaf_of


@dataclass(frozen=True, slots=True)
class Seat:
    """Seat of the wallet in committee ``draw`` of a dispute, drawn in ``block``; id as 0x hex."""

    dispute_id: str
    draw: int
    block: int


@dataclass(frozen=True, slots=True)
class Opening:
    """Disputed unit; order and commitment are None if not in the opening transaction."""

    unit_id: str
    provider: str
    order: JobOrder | None
    unit: UnitCommitment | None


class RefereeChain(DisputeChain):
    """The contract Disputes with the wallet of a staked verifier."""

    def should_enlist(self) -> bool:
        """Return True if the wallet qualifies and its listing is missing or half over."""
        latest, functions = self.latest_block(), self._disputes.functions
        with chain_errors():
            remaining = int(functions.listedUntil(self._sender).call()) - latest.timestamp
            if 2 * remaining > int(functions.LISTING_PERIOD().call()):
                return False
            return bool(self._staking.functions.qualifies(self._sender, 0).call())

    def enlist(self) -> str:
        """Register as a referee or renew; return the transaction's hash. Raises ZooError."""
        return self._send(self._disputes.functions.registerReferee())

    def seats(self, first: int, last: int) -> list[Seat]:
        """Return the wallet's seats in committees drawn in the blocks ``first`` to ``last``."""
        return [
            Seat(to_hex(event["args"]["disputeId"]), int(event["args"]["draw"]), int(event["blockNumber"]))
            for event in self._events("CommitteeDrawn", first, last)
            if self._sender in event["args"]["committee"]
        ]

    def opening(self, dispute_id: str) -> Opening:
        """Return the disputed unit. A contract can open a dispute in an internal call.

        Raises:
            ZooError: ``dispute-unknown``: the chain has no such dispute.
        """
        from web3.exceptions import TransactionNotFound

        opened = self._opened_event(dispute_id)
        if opened is None:
            raise ZooError("dispute-unknown", f"the chain has no dispute {dispute_id}")
        unit_id, provider = to_hex(opened["args"]["unitId"]), str(opened["args"]["provider"])
        with chain_errors():
            try:
                call = self._web3.eth.get_transaction(opened["transactionHash"])["input"]
            except TransactionNotFound:  # the node prunes old transactions
                return Opening(unit_id, provider, None, None)
        for arguments in opening_calls(self._disputes, call):
            order, unit = JobOrder(**plain(arguments["order"])), UnitCommitment(**plain(arguments["unit"]))
            if to_hex(leaf_of(unit)) == unit_id:  # a multicall can open several disputes
                return Opening(unit_id, provider, order, unit)
        return Opening(unit_id, provider, None, None)
