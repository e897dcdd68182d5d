"""Contract calls that a wallet signs and sends."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from zoo_compute.base.amounts import format_zen
from zoo_compute.base.errors import ZooError
from zoo_compute.base.models import Claim
from zoo_compute.chain.wallet import Block, Wallet, chain_errors, checked_address
from zoo_protocol import messages
from zoo_protocol.contracts import artifact

_PERMIT_SECONDS = 3600
_CONFIRMATIONS = 12  # stand for finality if the node has no finalized tag
_MINING_SECONDS = 120.0
_GAS_PERCENT = 125  # of the estimate: the call can need more in a later block
_FEES = ("maxFeePerGas", "maxPriorityFeePerGas", "gasPrice")


@dataclass(frozen=True, slots=True)
class StakeAccount:
    """Stake and unbonding ZEN of a wallet, in wei.

    Attributes:
        release_at: Unix time from which all unbonding ZEN can be withdrawn.
        next_release_at: the same time if unbonding is requested now.
    """

    stake: int
    unbonding: int
    release_at: int
    next_release_at: int


class Chain:
    """Contract calls with a wallet, in wei of ZEN. Methods raise Unreachable.

    Args:
        contracts: addresses by name, as in ``GET /v1/network``.
    """

    def __init__(self, rpc_url: str, contracts: Mapping[str, str], wallet: Wallet) -> None:
        from eth_utils.address import to_checksum_address
        from web3 import HTTPProvider, Web3

        self._web3 = Web3(HTTPProvider(rpc_url, request_kwargs={"timeout": 10}))
        self._wallet = wallet
        self._has_finality = False  # the node has answered the ``finalized`` tag before
        self._sender = to_checksum_address(wallet.address)
        self._contracts = {name: to_checksum_address(address) for name, address in contracts.items()}

    @cached_property  # building a contract takes 5 ms
    def _token(self) -> Any:
        return self._contract("ZenToken")

    @cached_property
    def _staking(self) -> Any:
        return self._contract("ProviderStaking")

    @cached_property
    def _escrow(self) -> Any:
        return self._contract("JobEscrow")

    @cached_property
    def _rewards(self) -> Any:
        return self._contract("Rewards")

    def balance(self, address: str | None = None) -> int:
        """Return the ZEN of an address (default: the wallet's)."""
        with chain_errors():
            return int(self._token.functions.balanceOf(address or self._sender).call())

    def stake(self, amount: int) -> str:
        """Add to the stake with a permit; return the transaction's hash. Raises ZooError."""
        self._require_balance(amount, "the stake needs")
        deadline = int(time.time()) + _PERMIT_SECONDS
        with chain_errors():
            permit = messages.permit_typed_data(
                self._web3.eth.chain_id,
                self._token.address,
                self._token.functions.name().call(),
                self._sender,
                self._staking.address,
                amount,
                self._token.functions.nonces(self._sender).call(),
                deadline,
            )
        raw = bytes.fromhex(self._wallet.sign_typed_data(permit).removeprefix("0x"))
        call = self._staking.functions.stakeWithPermit(amount, deadline, raw[64], raw[:32], raw[32:64])
        return self._send(call)

    def stake_account(self) -> StakeAccount:
        """Return the wallet's stake, its unbonding ZEN and the dates of a withdrawal."""
        with chain_errors():
            stake, unbonding, release_at, _ = self._staking.functions.accountOf(self._sender).call()
            delay = self._staking.functions.unbondingDelay().call()
            committed_until = self._staking.functions.committedUntil(self._sender).call()
        return StakeAccount(stake, unbonding, release_at, max(self.time() + delay, committed_until))

    def unstake(self, amount: int) -> str:
        """Begin to unbond a part of the stake; return the hash. Raises ZooError."""
        return self._send(self._staking.functions.requestUnstake(amount))

    def withdraw_stake(self) -> str:
        """Withdraw all unbonding ZEN to the wallet; return the hash. Raises ZooError."""
        return self._send(self._staking.functions.withdraw())

    def commit(self, until: int) -> str:
        """Commit to uptime until a later Unix time; return the hash. Raises ZooError."""
        return self._send(self._staking.functions.commit(until))

    def claim(self, claims: Sequence[Claim], to: str | None = None) -> str:
        """Claim pay from settled batches in one transaction; return its hash once mined.

        Args:
            claims: claims from the market; their challenge periods must be over.
            to: recipient (default: the wallet).

        Raises:
            ZooError: the contract refuses, or the transaction fails.
        """
        items = [(claim.amount_wei, claim.proof) for claim in claims]
        return self._send(self._escrow.functions.claim(self._payee(to), items))

    def withdraw_balance(self, amount: int) -> str:
        """Withdraw from the balance in the escrow to the wallet; return the hash. Raises ZooError."""
        return self._send(self._escrow.functions.withdraw(amount, self._sender))

    def withheld(self, batch_id: int) -> int:
        """Return the part of the wallet's pay in a batch that is held or forfeited by disputes."""
        with chain_errors():
            return int(self._escrow.functions.withheldOf(batch_id, self._sender).call())

    def has_claimed(self, batch_id: int) -> bool:
        """Return whether the wallet claimed its pay from a batch, as of the newest block."""
        with chain_errors():
            return bool(self._escrow.functions.isClaimed(batch_id, self._sender).call())

    def rewards_claimed(self) -> int:
        """Return the sum of the wallet's claimed rewards."""
        with chain_errors():
            return int(self._rewards.functions.claimed(self._sender).call())

    def claim_rewards(self, cumulative: int, proof: Sequence[str], to: str | None = None) -> str:
        """Claim the wallet's rewards up to ``cumulative``; returns the mined transaction's hash.

        Args:
            proof: the market's proof for the epoch in force.
            to: recipient (default: the wallet).

        Raises:
            ZooError: the contract refuses, or the transaction fails.
        """
        return self._send(self._rewards.functions.claimTo(self._payee(to), cumulative, list(proof)))

    def time(self) -> int:
        """Return the Unix time of the latest block, the clock of the contracts."""
        return self.latest_block().timestamp

    def latest_block(self) -> Block:
        return self._block("latest")

    def final_block(self) -> Block:
        """Return the newest final block, by the ``finalized`` tag or by confirmations."""
        from web3.exceptions import BlockNotFound, Web3RPCError

        with chain_errors():
            try:
                found = self._web3.eth.get_block("finalized")
                self._has_finality = True
            except (BlockNotFound, Web3RPCError):
                if self._has_finality:  # for example after a node's restart: confirmations are weaker than finality
                    raise
                found = self._web3.eth.get_block(max(0, self._web3.eth.block_number - _CONFIRMATIONS))
            return Block(found["number"], found["timestamp"])

    def transfer(self, to: str, amount: int) -> str:
        """Send ZEN; returns the mined transaction's hash. Raises ZooError: the transaction fails."""
        return self._send(self._token.functions.transfer(to, amount))

    def _block(self, which: Any) -> Block:
        with chain_errors():
            found = self._web3.eth.get_block(which)
            return Block(found["number"], found["timestamp"])

    def _require_balance(self, amount: int, needs: str, remedy: str = "Send ZEN to this address.") -> None:
        if (balance := self.balance()) < amount:
            detail = f"{self._sender} has {format_zen(balance)} ZEN; {needs} {format_zen(amount)}"
            raise ZooError("balance-too-low", detail, remedy=remedy)

    def _approve(self, contract: Any, amount: int) -> None:
        """Let a contract take ``amount`` of the wallet's ZEN, unless it may already."""
        with chain_errors():
            allowed = self._token.functions.allowance(self._sender, contract.address).call()
        if allowed < amount:
            self._send(self._token.functions.approve(contract.address, amount))

    def _payee(self, to: str | None) -> str:
        return self._sender if to is None else checked_address(to)

    def _contract(self, name: str) -> Any:
        return self._web3.eth.contract(address=self._contracts[name], abi=artifact(name).abi)

    def _send(self, call: Any, fee_percent: int = 100) -> str:
        """Send a transaction and wait until it is mined; returns its hash.

        Args:
            fee_percent: percentage of the usual fee. Above 100, the transaction replaces the wallet's first pending
                one, which can be an earlier attempt.

        Raises:
            ZooError: the contract refuses, the transaction reverts, or the wallet lacks native tokens for its gas.
            Unreachable: the node does not answer, or the transaction is not mined in time.
        """
        eth, raised = self._web3.eth, fee_percent > 100
        with chain_errors():
            nonce = eth.get_transaction_count(self._sender, "latest" if raised else "pending")
            # Against the mined state: a pending transaction may be the one that this replaces.
            gas = call.estimate_gas({"from": self._sender}, block_identifier="latest") * _GAS_PERCENT // 100
            transaction = call.build_transaction({"from": self._sender, "nonce": nonce, "gas": gas})
            for name in _FEES:
                if name in transaction:
                    transaction[name] = transaction[name] * fee_percent // 100
            self._require_native_balance(transaction)
            sent = eth.send_raw_transaction(self._wallet.sign_transaction(transaction))
            receipt = eth.wait_for_transaction_receipt(sent, timeout=_MINING_SECONDS, poll_latency=0.2)
        if receipt["status"] != 1:
            raise ZooError("transaction-reverted", f"{call.fn_name} reverted in {sent.to_0x_hex()}")
        return str(sent.to_0x_hex())

    def _require_native_balance(self, transaction: Mapping[str, Any]) -> None:
        price = transaction.get("maxFeePerGas", transaction.get("gasPrice", 0))
        needed, held = transaction["gas"] * price, self._web3.eth.get_balance(self._sender)
        if held < needed:
            raise ZooError(
                "coin-too-low",  # prose: ok
                f"{self._sender} has {format_zen(held)} native tokens; a transaction may cost {format_zen(needed)}",
                remedy="Send native tokens of the chain (not ZEN) to this address.",
            )
