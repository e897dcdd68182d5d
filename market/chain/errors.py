"""Errors of the chain, and the one place that reads nodes' error strings.

Every node words its errors differently. They are mapped here, once, so that nothing else compares strings.
"""

from collections.abc import Callable
from typing import Any


class ChainError(Exception):
    """Base of everything that can go wrong with the chain; ``code`` is stable."""

    code = "chain_error"


class RpcUnavailable(ChainError):
    """The node gave no usable answer. Whether a request took effect is unknown."""

    code = "rpc_unavailable"


class Lagging(RpcUnavailable):
    """The nodes that answer have not reached a block that was seen before."""

    code = "node_lags"


class RateLimited(RpcUnavailable):
    """The node takes no more requests for now."""

    code = "rate_limited"


class RpcError(ChainError):
    """The node answered with an error that has no type of its own here."""

    code = "rpc_error"


class WrongChain(ChainError):
    """The node serves another chain than the deployment was made on."""

    code = "wrong_chain"


class UnknownBlock(ChainError):
    """The node does not have the block it was asked about: it lags, or the block was reorganised away."""

    code = "unknown_block"


class IncompleteLogs(ChainError):
    """The node's logs and receipts of a block contradict the block; nothing may be concluded from them."""

    code = "incomplete_logs"


class FinalityViolated(ChainError):
    """The chain no longer contains a block that was final and whose money has been booked."""

    code = "finality_violated"


class NonceTooLow(ChainError):
    """A transaction with this nonce is already mined: ours, or somebody else's with the same key."""

    code = "nonce_too_low"


class AlreadyKnown(ChainError):
    """The node holds exactly this transaction."""

    code = "already_known"


class ReplacementUnderpriced(ChainError):
    """The node holds another transaction at this nonce, which the fees offered do not outbid."""

    code = "replacement_underpriced"


class FeeTooLow(ChainError):
    """The node does not take transactions at this fee now."""

    code = "fee_too_low"


class InsufficientFunds(ChainError):
    """The signer cannot pay for gas."""

    code = "insufficient_funds"


class ExecutionReverted(ChainError):
    """The contract refuses the call. ``name`` is its custom error, or ``Error`` / ``Panic`` / ``Unknown``."""

    code = "execution_reverted"

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name}({detail})")
        self.name, self.detail = name, detail


class UnusableKey(ChainError, ValueError):
    """The settings name no key that can sign. The message never holds any part of a key or password."""

    code = "unusable_key"


class BadArguments(ChainError, ValueError):
    """The call does not fit the contract's interface: unknown function, or an argument of the wrong shape."""

    code = "bad_arguments"


# Substrings of the lower-cased message; the first match counts, so specific wordings stand before general ones.
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
    """The typed form of a JSON-RPC ``error`` object; ``decode_revert`` turns revert data into (name, detail)."""
    message = str(error.get("message", ""))
    lowered = message.lower()
    if "revert" in lowered or error.get("code") == 3:
        return ExecutionReverted(*decode_revert(_revert_data(error)))
    for kind, wordings in _WORDINGS:
        if any(wording in lowered for wording in wordings):
            return kind(message)
    return RpcError(f"{error.get('code')}: {message}")


def _revert_data(error: dict[str, Any]) -> bytes:
    data = error.get("data")
    if isinstance(data, dict):  # some nodes nest it
        data = data.get("data")
    return bytes.fromhex(data[2:]) if isinstance(data, str) and data.startswith("0x") else b""
