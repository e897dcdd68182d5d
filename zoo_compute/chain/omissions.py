"""Calls and queries of a provider on acknowledged commitments (contract Omissions)."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from enum import IntEnum

from zoo_compute.chain.transactions import Chain
from zoo_compute.chain.wallet import Block, Wallet, chain_errors
from zoo_protocol.hashing import from_hex, keccak
from zoo_protocol.messages import UnitCommitment

_ROLE = keccak(b"ACKNOWLEDGER_ROLE")


class ClaimState(IntEnum):
    """State of a claim in the contract."""

    NONE = 0
    OPEN = 1
    ANSWERED = 2
    COMPENSATED = 3


@dataclass(frozen=True, slots=True)
class Terms:
    """The contract's terms: wei of ZEN and seconds."""

    stake: int
    compensation: int
    claim_period: int
    response_period: int
    withdrawal_delay: int


class OmissionChain(Chain):
    """The contracts Omissions and WorkWindows with the provider's wallet."""

    def __init__(self, rpc_url: str, contracts: Mapping[str, str], wallet: Wallet) -> None:
        super().__init__(rpc_url, contracts, wallet)
        self._omissions, self._windows = map(self._contract, ("Omissions", "WorkWindows"))

    def terms(self) -> Terms:
        """Return a claim's stake, its compensation and its periods."""
        with chain_errors():
            return Terms(*self._omissions.functions.terms().call())

    def bond(self) -> int:
        """Return the operator's bond without the part that is announced for withdrawal, wei."""
        with chain_errors():
            bond, announced = self._omissions.functions.bond().call(), self._omissions.functions.withdrawal().call()
            return max(0, int(bond) - int(announced[0]))

    def is_acknowledger(self, address: str) -> bool:
        """Return whether the address has the acknowledger role now."""
        with chain_errors():
            return bool(self._omissions.functions.hasRole(_ROLE, address).call())

    def committed_at(self, window_root: str, block: Block) -> int | None:
        """Return the Unix time at which the root was committed, as of ``block``; None if it was not."""
        from web3.exceptions import ContractLogicError

        with chain_errors():
            try:
                window = self._windows.functions.windows(from_hex(window_root)).call(block_identifier=block.number)
            except ContractLogicError:  # UnknownWindow, the only error
                return None
        return int(window[3])

    def claim_state(self, unit_id: str, block: Block) -> tuple[ClaimState, int]:
        """Return the state of the unit's claim as of ``block``, and its response deadline."""
        with chain_errors():
            found = self._omissions.functions.claims(from_hex(unit_id)).call(block_identifier=block.number)
        return ClaimState(found[3]), int(found[2])

    def open_claim(self, unit: UnitCommitment, include_by: int, acknowledgement: str) -> str:
        """Claim an omission and approve the stake; return the transaction's hash. Raises ZooError."""
        stake = self.terms().stake
        remedy = "Send ZEN to this address; the node repeats the claim."
        self._require_balance(stake, "a claim needs a stake of", remedy)
        self._approve(self._omissions, stake)
        return self._send(self._omissions.functions.claim(astuple(unit), include_by, from_hex(acknowledgement, 65)))

    def resolve(self, unit_id: str) -> str:
        """Resolve an unanswered claim; return its hash. Raises as :meth:`open_claim`."""
        return self._send(self._omissions.functions.resolve(from_hex(unit_id)))
