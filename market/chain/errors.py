"""Errors of the chain, and their mapping from error strings, which differ between nodes."""

from collections.abc import Callable
from typing import Any


class ChainError(Exception):
    """Base of all chain errors; ``code`` is stable."""

    code = "chain_error"


class RpcUnavailable(ChainError):
    """The node gave no usable answer. The request may have taken effect."""

    code = "rpc_unavailable"


class RpcTimeout(RpcUnavailable):
    """The node did not answer in time."""

    code = "rpc_timeout"


class Lagging(RpcUnavailable):
    """All nodes that answer are behind the newest block seen."""

    code = "node_lags"


class RateLimited(RpcUnavailable):
    """The node refuses more requests for now."""

    code = "rate_limited"


class RpcError(ChainError):
    """The node answered with an error that has no other type."""

    code = "rpc_error"


class WrongChain(ChainError):
    """The node serves another chain than the deployment's."""

    code = "wrong_chain"


class UnknownBlock(ChainError):
    """The node does not have the requested block: it lags, or a reorg replaced the block."""

    code = "unknown_block"


class IncompleteLogs(ChainError):
    """The node's logs and receipts of a block contradict the block, so they are unusable."""

    code = "incomplete_logs"


class FinalityViolated(ChainError):
    """The chain lacks a block that was final and that the ledger has recorded."""

    code = "finality_violated"


class NonceTooLow(ChainError):
    """A transaction with this nonce is mined: the market's, or a foreign one with the same key."""

    code = "nonce_too_low"


class AlreadyKnown(ChainError):
    """The node has exactly this transaction."""

    code = "already_known"


class ReplacementUnderpriced(ChainError):
    """The node has another transaction with this nonce, and the fees do not outbid it."""

    code = "replacement_underpriced"


class FeeTooLow(ChainError):
    """The node refuses transactions at this fee now."""

    code = "fee_too_low"


class InsufficientFunds(ChainError):
    """The signer cannot pay for gas."""

    code = "insufficient_funds"


class ExecutionReverted(ChainError):
    """The contract reverts; ``name`` is its error, or ``Error`` / ``Panic`` / ``Unknown``.

    ``data`` holds the undecoded error.
    """

    code = "execution_reverted"

    def __init__(self, name: str, detail: str, data: bytes = b"") -> None:
        super().__init__(f"{name}({detail})")
        self.name, self.detail, self.data = name, detail, data


class UnusableKey(ChainError, ValueError):
    """The settings have no usable key. The message contains no part of a key or password."""

    code = "unusable_key"


class BadArguments(ChainError, ValueError):
    """The call does not match the interface: unknown function or wrong type of an argument."""

    code = "bad_arguments"


# Substrings of the lower-case message; the first match counts, so specific wordings precede general ones.
_WORDINGS: tuple[tuple[type[ChainError], tuple[str, ...]], ...] = (
    (NonceTooLow, ("nonce too low", "nonce is too low", "oldnonce", "nonce_too_low")),
    (AlreadyKnown, ("already known", "already imported", "known transaction", "alreadyknown", "already exists")),
    (ReplacementUnderpriced, ("replacement", "to replace", "could not replace")),
    (FeeTooLow, ("underpriced", "base fee", "feetoolow", "fee too low", "gas price too low")),
    (InsufficientFunds, ("insufficient funds", "insufficientfunds", "insufficient balance")),
    (RateLimited, ("rate limit", "too many requests", "request limit", "requests per", "compute units per")),
    (UnknownBlock, ("unknown block", "header not found", "block not found", "header for hash not found")),
)


def node_error(error: dict[str, Any], decode_revert: Callable[[bytes], tuple[str, str]]) -> ChainError:
    """Return the typed form of a JSON-RPC ``error``; ``decode_revert`` maps revert data."""
    message = str(error.get("message", ""))
    lowered = message.lower()
    if "revert" in lowered or error.get("code") == 3:
        data = _revert_data(error)
        return ExecutionReverted(*decode_revert(data), data)
    for kind, wordings in _WORDINGS:
        if any(wording in lowered for wording in wordings):
            return kind(message)
    return RpcError(f"{error.get('code')}: {message}")


def _revert_data(error: dict[str, Any]) -> bytes:
    data = error.get("data")
    if isinstance(data, dict):  # some nodes nest it
        data = data.get("data")
    return bytes.fromhex(data[2:]) if isinstance(data, str) and data.startswith("0x") else b""
