"""One node of the chain, spoken to over JSON-RPC.

No request is ever repeated silently: a send whose answer is lost has an unknown outcome, and only the sender knows
what to do then.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from eth_utils.crypto import keccak
from web3 import HTTPProvider
from web3.types import RPCEndpoint

from market.chain.contracts import decode_revert
from market.chain.errors import (
    IncompleteLogs,
    RpcError,
    RpcUnavailable,
    UnknownBlock,
    WrongChain,
    node_error,
)

COMMON_TIP = 10**9  # wei per gas
BlockTag = int | str  # a number, a 0x hash of 32 bytes, or "latest", "finalized", "pending"


@dataclass(frozen=True, slots=True)
class Block:
    """Header of a block. ``timestamp`` in Unix seconds, ``base_fee`` in wei per gas."""

    number: int
    hash: str
    parent_hash: str
    timestamp: int
    base_fee: int
    logs_bloom: int


@dataclass(frozen=True, slots=True)
class Log:
    """One event log as the node gives it."""

    address: str
    topics: tuple[str, ...]
    data: str
    tx_hash: str
    log_index: int
    block_hash: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a mined transaction."""

    tx_hash: str
    block_number: int
    block_hash: str
    succeeded: bool


class ChainClient:
    """Typed reads and the one write (``send_raw``).

    Every method raises :class:`RpcUnavailable` when the node gives no answer, and the typed errors of
    ``market.chain.errors`` when it answers with one.
    """

    def __init__(self, rpc_url: str, chain_id: int, *, confirmations: int = 12, timeout_seconds: float = 10.0) -> None:
        """``confirmations``: blocks that stand for finality where the node has no ``finalized`` tag."""
        self.chain_id = chain_id
        self._confirmations = confirmations
        self._provider = HTTPProvider(
            rpc_url, request_kwargs={"timeout": timeout_seconds}, exception_retry_configuration=None
        )

    @classmethod
    def ask_chain_id(cls, rpc_url: str) -> int:
        """The chain that a node serves, where it is not known beforehand."""
        return int(cls(rpc_url, 0)._ask("eth_chainId"), 16)

    def check_chain(self) -> None:
        """Raise :class:`WrongChain` unless the node serves this client's chain."""
        actual = int(self._ask("eth_chainId"), 16)
        if actual != self.chain_id:
            raise WrongChain(f"the node serves chain {actual}, expected chain {self.chain_id}")

    # --- blocks and logs

    def block(self, which: BlockTag) -> Block | None:
        """The block of that number, hash or tag; None where the node has none."""
        if isinstance(which, str) and len(which) == 66:
            found = self._ask("eth_getBlockByHash", which, False)
        else:
            found = self._ask("eth_getBlockByNumber", _tag(which), False)
        return None if found is None else _block(found)

    def head(self) -> Block:
        """The latest block."""
        head = self.block("latest")
        if head is None:
            raise RpcUnavailable("the node has no latest block")
        return head

    def finalised(self) -> Block:
        """The newest block that cannot be reorganised away, by the node's tag or by confirmations."""
        try:
            tagged = self.block("finalized")
        except (RpcError, UnknownBlock):  # the node does not know the tag
            tagged = None
        if tagged is not None:
            return tagged
        number = max(0, self.head().number - self._confirmations)
        settled = self.block(number)
        if settled is None:
            raise UnknownBlock(f"the node does not have its own block {number}")
        return settled

    def logs(self, block: Block, addresses: Collection[str]) -> list[Log]:
        """All logs of ``addresses`` in exactly this block, in order.

        An empty answer counts only if the block's bloom filter rules these addresses out or its receipts show none:
        a node that lags behind the block answers ``[]`` as well.

        Raises:
            UnknownBlock: the node does not have the block.
            IncompleteLogs: the answer contradicts the receipts.
        """
        if not any(_in_bloom(block.logs_bloom, address) for address in addresses):
            return []
        found = self._ask("eth_getLogs", {"blockHash": block.hash, "address": sorted(addresses)})
        logs = sorted((_log(item) for item in found), key=lambda log: log.log_index)
        if any(log.block_hash != block.hash for log in logs):
            raise IncompleteLogs(f"block {block.hash}: the node answered with logs of another block")
        if not logs and self._receipts_mention(block, addresses):
            raise IncompleteLogs(f"block {block.hash}: receipts hold logs that eth_getLogs does not return")
        return logs

    def _receipts_mention(self, block: Block, addresses: Collection[str]) -> bool:
        receipts = self._ask("eth_getBlockReceipts", block.hash)
        if receipts is None:
            raise UnknownBlock(f"block {block.hash}: the node has no receipts")
        ours = {address.lower() for address in addresses}
        return any(log["address"].lower() in ours for receipt in receipts for log in receipt["logs"])

    # --- state

    def call(self, to: str, data: bytes, *, sender: str | None = None, block: BlockTag = "latest") -> bytes:
        """Result of a contract call at a block, without a transaction."""
        request = {"to": to, "data": _hex(data)} | ({"from": sender} if sender else {})
        return bytes.fromhex(self._ask("eth_call", request, _block_parameter(block))[2:])

    def code(self, address: str) -> bytes:
        """Deployed code at the address; empty for a plain account."""
        return bytes.fromhex(self._ask("eth_getCode", address, "latest")[2:])

    def ether(self, address: str) -> int:
        """Balance of the chain's own coin, in wei."""
        return int(self._ask("eth_getBalance", address, "latest"), 16)

    def nonce(self, address: str, block: BlockTag = "latest") -> int:
        """How many transactions of the address are mined up to the block: the next nonce."""
        return int(self._ask("eth_getTransactionCount", address, _block_parameter(block)), 16)

    # --- transactions

    def estimate_gas(self, sender: str, to: str | None, data: bytes) -> int:
        """Gas that the transaction would use after the latest block; what is only pending does not count.

        Raises:
            ExecutionReverted: it would revert.
        """
        request = {"from": sender, "data": _hex(data)} | ({"to": to} if to else {})
        return int(self._ask("eth_estimateGas", request, "latest"), 16)

    def priority_fee(self) -> int:
        """The tip that the node suggests, in wei per gas; a common one where it suggests none."""
        try:
            return int(self._ask("eth_maxPriorityFeePerGas"), 16)
        except RpcError:  # nodes need not know this method
            return COMMON_TIP

    def send_raw(self, raw: bytes) -> None:
        """Hand signed bytes to the node."""
        self._ask("eth_sendRawTransaction", _hex(raw))

    def receipt(self, tx_hash: str) -> Receipt | None:
        """The receipt of a mined transaction; None while there is none."""
        found = self._ask("eth_getTransactionReceipt", tx_hash)
        if found is None:
            return None
        return Receipt(
            tx_hash=str(found["transactionHash"]),
            block_number=int(found["blockNumber"], 16),
            block_hash=str(found["blockHash"]),
            succeeded=int(found["status"], 16) == 1,
        )

    def transaction_at(self, sender: str, nonce: int, until: Block) -> str:
        """Hash of the mined transaction of ``sender`` that used a nonce, searched in the blocks up to ``until``.

        Raises:
            UnknownBlock: it is not there; or so old that the node has no state of its time any more.
        """
        high, step = until.number, 1
        low = max(0, high - step)
        try:
            while low > 0 and self.nonce(sender, low) > nonce:  # in growing steps: the state of old blocks may be gone
                high, step = low, 2 * step
                low = max(0, high - step)
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if self.nonce(sender, middle) > nonce else (middle, high)
        except RpcError as error:
            raise UnknownBlock(f"the node has no state of the time of nonce {nonce}: {error}") from error
        found = self._ask("eth_getBlockByNumber", hex(high), True)
        for transaction in found["transactions"] if found else ():
            if str(transaction["from"]).lower() == sender.lower() and int(transaction["nonce"], 16) == nonce:
                return str(transaction["hash"])
        raise UnknownBlock(f"no transaction of {sender} with nonce {nonce} up to block {until.number}")

    def _ask(self, method: str, *parameters: Any) -> Any:
        try:
            response = self._provider.make_request(RPCEndpoint(method), list(parameters))
        except (OSError, ValueError) as error:  # no connection, HTTP status, or a body that is not JSON
            raise RpcUnavailable(f"{method}: {error}") from error
        failure = response.get("error")
        if isinstance(failure, dict):
            raise node_error(dict(failure), decode_revert)
        if failure is not None or "result" not in response:
            raise RpcUnavailable(f"{method}: malformed answer")
        return response["result"]


def _tag(which: BlockTag) -> str:
    return hex(which) if isinstance(which, int) else which


def _block_parameter(block: BlockTag) -> str | dict[str, Any]:
    """EIP-1898: a hash is passed as an object, so that a reorganised block is an error and not another state."""
    if isinstance(block, str) and len(block) == 66:
        return {"blockHash": block, "requireCanonical": True}
    return _tag(block)


def _hex(data: bytes) -> str:
    return "0x" + data.hex()


def _block(found: Any) -> Block:
    return Block(
        number=int(found["number"], 16),
        hash=str(found["hash"]),
        parent_hash=str(found["parentHash"]),
        timestamp=int(found["timestamp"], 16),
        base_fee=int(found.get("baseFeePerGas") or "0x0", 16),
        logs_bloom=int(found["logsBloom"], 16),
    )


def _log(found: Any) -> Log:
    return Log(
        address=str(found["address"]),
        topics=tuple(str(topic) for topic in found["topics"]),
        data=str(found["data"]),
        tx_hash=str(found["transactionHash"]),
        log_index=int(found["logIndex"], 16),
        block_hash=str(found["blockHash"]),
    )


def _in_bloom(bloom: int, address: str) -> bool:
    """Whether a block's 2048-bit bloom filter may contain the address (yellow paper, section 4.3.1)."""
    digest = keccak(hexstr=address)
    return all(bloom >> (int.from_bytes(digest[i : i + 2], "big") & 2047) & 1 for i in (0, 2, 4))
