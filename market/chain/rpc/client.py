"""Typed reads of the chain over JSON-RPC."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from eth_utils.crypto import keccak

from market.chain.errors import ExecutionReverted, IncompleteLogs, RpcError, UnknownBlock
from market.chain.rpc.transport import Endpoint, Nodes
from market.settings import split_list
from zoo_protocol.hashing import to_hex

MAX_BATCH = 100  # requests; a common limit of hosted nodes
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
    """Undecoded event log."""

    address: str
    topics: tuple[str, ...]
    data: str
    tx_hash: str
    log_index: int
    block_hash: str


@dataclass(frozen=True, slots=True)
class Transaction:
    """Transaction as the node has it. ``to`` is None if it creates a contract."""

    tx_hash: str
    sender: str
    to: str | None
    value_wei: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Receipt:
    """Outcome of a mined transaction."""

    tx_hash: str
    block_number: int
    block_hash: str
    succeeded: bool


class ChainClient:
    """Client with typed reads and one write (``send_raw``).

    Every method raises :class:`RpcUnavailable` if no node answers, and the typed errors of ``market.chain.errors``.

    Args:
        rpc_url: URLs of nodes, separated by commas, in order of preference.
        confirmations: blocks that replace finality if the node has no ``finalized`` tag.
        fails_fast: refuse reads for some seconds after one that no node answered in time.

    Raises:
        ValueError: a URL is malformed.
    """

    def __init__(
        self,
        rpc_url: str,
        chain_id: int,
        *,
        confirmations: int = 12,
        timeout_seconds: float = 10.0,
        fails_fast: bool = False,
    ) -> None:
        self.chain_id = chain_id
        self._confirmations = confirmations
        self._nodes = Nodes(split_list(rpc_url), chain_id, timeout_seconds, fails_fast=fails_fast)
        self._has_finality = False  # a node has returned a ``finalized`` block

    @classmethod
    def ask_chain_id(cls, rpc_url: str, timeout_seconds: float = 10.0) -> int:
        """Return the chain id of the first of these nodes."""
        return int(Endpoint(split_list(rpc_url)[0], timeout_seconds).ask("eth_chainId"), 16)

    def check_chain(self) -> None:
        """Raise :class:`WrongChain` unless the nodes serve this client's chain."""
        self._nodes.head()

    def block(self, which: BlockTag) -> Block | None:
        """Return the block of that number, hash or tag; None if the node has none."""
        if isinstance(which, str) and len(which) == 66:
            found = self._nodes.ask("eth_getBlockByHash", which, False)
        else:
            found = self._nodes.ask("eth_getBlockByNumber", _tag(which), False)
        return None if found is None else _block(found)

    def blocks(self, first: int, last: int) -> list[Block]:
        """Return the blocks ``first`` to ``last`` from one batch; each is the child of the last.

        Raises:
            UnknownBlock: the node lacks one, or its blocks are not a chain.
        """
        numbers = range(first, last + 1)
        found = self._nodes.ask_many([("eth_getBlockByNumber", (hex(number), False)) for number in numbers])
        if None in found:
            raise UnknownBlock(f"the node does not have all of the blocks {first} to {last}")
        blocks = [_block(item) for item in found]
        for number, block, before in zip(numbers, blocks, (None, *blocks), strict=False):
            if block.number != number or (before is not None and block.parent_hash != before.hash):
                raise UnknownBlock(f"the node's blocks {number - 1} and {number} are not of one chain")
        return blocks

    def head(self) -> Block:
        return _block(self._nodes.head())

    def finalised(self) -> Block:
        """Return the newest final block, by the ``finalized`` tag or by confirmations.

        Raises:
            UnknownBlock: the node returns no ``finalized`` block, although the chain has them.
        """
        try:
            tagged = self.block("finalized")
        except (RpcError, UnknownBlock):  # the node does not know the tag
            tagged = None
        if tagged is not None:
            self._has_finality = True
            return tagged
        if self._has_finality:  # for example after a node's restart: confirmations are weaker than finality
            self._nodes.demote_endpoint()
            raise UnknownBlock("the node returns no finalized block, although the chain has final blocks")
        number = max(0, self.head().number - self._confirmations)
        settled = self.block(number)
        if settled is None:
            raise UnknownBlock(f"the node does not have its own block {number}")
        return settled

    def logs(self, blocks: Sequence[Block], addresses: Collection[str]) -> list[list[Log]]:
        """Return all logs of ``addresses`` in exactly these blocks, in order, one list per block.

        A node that lags also returns no logs. An empty answer therefore counts only if the block's bloom filter
        excludes these addresses. Otherwise the block's receipts must explain the whole filter.

        Raises:
            UnknownBlock: the node does not have a block.
            IncompleteLogs: the logs or receipts contradict the block. The next call uses another node, if any.
        """
        wanted = frozenset(address.lower() for address in addresses)
        likely = [block for block in blocks if any(_in_bloom(block.logs_bloom, address) for address in wanted)]
        asked = [("eth_getLogs", ({"blockHash": block.hash, "address": sorted(wanted)},)) for block in likely]
        found = {
            block.hash: [_log(item) for item in items or ()]
            for block, items in zip(likely, self._nodes.ask_many(asked), strict=True)
        }
        silent = [block for block in likely if not found[block.hash]]
        receipts = self._nodes.ask_many([("eth_getBlockReceipts", (block.hash,)) for block in silent])
        for block, items in zip(silent, receipts, strict=True):
            found[block.hash] = self._logs_of_receipts(block, items)
        return [self._own_logs(block, found.get(block.hash, ()), wanted) for block in blocks]

    def _logs_of_receipts(self, block: Block, receipts: Any) -> list[Log]:
        if receipts is None:
            raise UnknownBlock(f"block {block.hash}: the node has no receipts")
        logs = [_log(item) for receipt in receipts for item in receipt["logs"]]
        explained = 0
        for log in logs:
            for value in (log.address, *log.topics):
                explained |= _bloom_bits(value)
        if block.logs_bloom & ~explained:
            self._nodes.demote_endpoint()
            raise IncompleteLogs(f"block {block.hash}: its receipts lack logs of its header")
        return logs

    def _own_logs(self, block: Block, logs: Iterable[Log], wanted: Collection[str]) -> list[Log]:
        own = [log for log in logs if log.address.lower() in wanted]
        if any(log.block_hash != block.hash for log in own):
            self._nodes.demote_endpoint()
            raise IncompleteLogs(f"block {block.hash}: the node answered with logs of another block")
        return sorted(own, key=lambda log: log.log_index)

    def call(self, to: str, data: bytes, *, sender: str | None = None, block: BlockTag = "latest") -> bytes:
        """Return the result of a contract call at a block, without a transaction."""
        request = {"to": to, "data": to_hex(data)} | ({"from": sender} if sender else {})
        return bytes.fromhex(self._nodes.ask("eth_call", request, _block_parameter(block))[2:])

    def refusal(self, sender: str, to: str, data: bytes) -> bytes | None:
        """Return the revert data of a call that ``sender`` would make now; None if it passes."""
        try:
            self.call(to, data, sender=sender)
        except ExecutionReverted as error:
            return error.data
        return None

    def call_many(self, calls: Sequence[tuple[str, bytes]], block: BlockTag) -> list[bytes]:
        """Return the results of (contract, call data) at one block, from batched requests."""
        results: list[bytes] = []
        for start in range(0, len(calls), MAX_BATCH):
            asked = [
                ("eth_call", ({"to": to, "data": to_hex(data)}, _block_parameter(block)))
                for to, data in calls[start : start + MAX_BATCH]
            ]
            results += [bytes.fromhex(result[2:]) for result in self._nodes.ask_many(asked)]
        return results

    def code(self, address: str) -> bytes:
        """Return the deployed code at the address; empty for a plain account."""
        return bytes.fromhex(self._nodes.ask("eth_getCode", address, "latest")[2:])

    def nonce(self, address: str, block: BlockTag = "latest") -> int:
        """Return the address's next nonce after the block."""
        return int(self._nodes.ask("eth_getTransactionCount", address, _block_parameter(block)), 16)

    def estimate_gas(self, sender: str, to: str | None, data: bytes) -> int:
        """Return the gas that the transaction would use after the latest block.

        Raises:
            ExecutionReverted: it would revert.
        """
        request = {"from": sender, "data": to_hex(data)} | ({"to": to} if to else {})
        return int(self._nodes.ask("eth_estimateGas", request, "latest"), 16)

    def priority_fee(self) -> int:
        """Return the node's suggested tip in wei per gas; ``COMMON_TIP`` if it suggests none."""
        try:
            return int(self._nodes.ask("eth_maxPriorityFeePerGas"), 16)
        except RpcError:  # an optional method
            return COMMON_TIP

    def send_raw(self, raw: bytes) -> None:
        """Send signed bytes to the current node, once. Without an answer, the outcome is unknown."""
        self._nodes.send("eth_sendRawTransaction", to_hex(raw))

    def receipt(self, tx_hash: str) -> Receipt | None:
        """Return the receipt of a mined transaction; None if there is none."""
        found = self._nodes.ask("eth_getTransactionReceipt", tx_hash)
        if found is None:
            return None
        return Receipt(
            tx_hash=str(found["transactionHash"]),
            block_number=int(found["blockNumber"], 16),
            block_hash=str(found["blockHash"]),
            succeeded=int(found["status"], 16) == 1,
        )

    def transaction(self, tx_hash: str) -> Transaction | None:
        """Return a transaction, mined or not; None if the node does not have it."""
        found = self._nodes.ask("eth_getTransactionByHash", tx_hash)
        if found is None:
            return None
        return Transaction(
            tx_hash=tx_hash,
            sender=str(found["from"]),
            to=None if found["to"] is None else str(found["to"]),
            value_wei=int(found["value"], 16),
            data=bytes.fromhex(found["input"][2:]),
        )

    def transaction_at(self, sender: str, nonce: int, until: Block) -> str:
        """Return the hash of ``sender``'s mined transaction with a nonce, up to block ``until``.

        Raises:
            UnknownBlock: it does not exist, or the node lacks the state of that block.
        """
        high, step = until.number, 1
        low = max(0, high - step)
        try:
            while low > 0 and self.nonce(sender, low) > nonce:  # growing steps: the node may lack old states
                high, step = low, 2 * step
                low = max(0, high - step)
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if self.nonce(sender, middle) > nonce else (middle, high)
        except RpcError as error:
            raise UnknownBlock(f"the node lacks the state at nonce {nonce}: {error}") from error
        found = self._nodes.ask("eth_getBlockByNumber", hex(high), True)
        for transaction in found["transactions"] if found else ():
            if str(transaction["from"]).lower() == sender.lower() and int(transaction["nonce"], 16) == nonce:
                return str(transaction["hash"])
        raise UnknownBlock(f"no transaction of {sender} with nonce {nonce} up to block {until.number}")


def _tag(which: BlockTag) -> str:
    return hex(which) if isinstance(which, int) else which


def _block_parameter(block: BlockTag) -> str | dict[str, Any]:
    """Return a hash as an object (EIP-1898), so that a call at a replaced block fails."""
    if isinstance(block, str) and len(block) == 66:
        return {"blockHash": block, "requireCanonical": True}
    return _tag(block)


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


def _in_bloom(bloom: int, value: str) -> bool:
    bits = _bloom_bits(value)
    return bloom & bits == bits


@lru_cache(4096)
def _bloom_bits(value: str) -> int:
    """Return the bits in a 2048-bit bloom filter (yellow paper, section 4.3.1)."""
    digest = keccak(hexstr=value)
    positions = (int.from_bytes(digest[start : start + 2], "big") & 2047 for start in (0, 2, 4))
    return sum(1 << position for position in set(positions))
