"""Wallet: identity towards the market and signer on the chain.

Signing needs no network. Only :class:`Chain` reaches the chain. It imports web3 on first use, so that other processes
do not load it.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eth_account import Account
from eth_account.messages import encode_defunct
from eth_account.signers.local import LocalAccount

from zoo_compute.base.errors import ConfigError, Unreachable, ZooError
from zoo_protocol import messages
from zoo_protocol.reverts import decode_revert

KEY_VARIABLE = "ZOO_PRIVATE_KEY"
KEYSTORE_VARIABLE = "ZOO_KEYSTORE"
PASSWORD_VARIABLE = "ZOO_KEYSTORE_PASSWORD"

_LOST_KEY = "If it is damaged, restore your backup: only this key can withdraw its stake."

NOT_MINED = "transaction-not-mined"


class Wallet:
    """One private key. Its text form never contains the key.

    Args:
        private_key: 32 bytes as 64 hex digits, with or without ``0x``.

    Raises:
        ConfigError: the key is malformed; the message does not repeat it.
    """

    def __init__(self, private_key: str) -> None:
        code, remedy = "private-key-malformed", f"Check {KEY_VARIABLE}."
        if not re.fullmatch(r"(0x)?[0-9a-fA-F]{64}", private_key):
            raise ConfigError(code, "the private key is not 64 hex digits", remedy=remedy)
        try:
            self._account: LocalAccount = Account.from_key(private_key)
        except ValueError as error:  # zero, or beyond the curve's order
            raise ConfigError(code, "the private key is not on the curve secp256k1", remedy=remedy) from error
        self.address = str(self._account.address)

    def __repr__(self) -> str:
        return f"Wallet({self.address})"

    @classmethod
    def from_keystore(cls, path: Path, password: str) -> "Wallet":
        """Decrypt a keystore file (Web3 Secret Storage, as geth and others write it).

        Raises:
            ConfigError: the file is missing or not a keystore, or the password is wrong.
        """
        try:
            key = Account.decrypt(json.loads(path.read_text()), password)
        except OSError as error:
            remedy = f"Check {KEYSTORE_VARIABLE}. {_LOST_KEY}"
            raise ConfigError("keystore-unreadable", f"{path}: {error.strerror}", remedy=remedy) from error
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                "keystore-unusable",
                f"{path} cannot be decrypted: {error}",
                remedy=f"Give a keystore file of version 3, and its password in {PASSWORD_VARIABLE}. {_LOST_KEY}",
            ) from error
        return cls(bytes(key).hex())

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Wallet | None":
        """Return the wallet of ``ZOO_PRIVATE_KEY`` or ``ZOO_KEYSTORE``; None without both.

        Raises:
            ConfigError: a variable is invalid.
        """
        if key := environment.get(KEY_VARIABLE):
            return cls(key.strip())
        if keystore := environment.get(KEYSTORE_VARIABLE):
            return cls.from_keystore(Path(keystore), environment.get(PASSWORD_VARIABLE, ""))
        return None

    def sign_typed_data(self, document: dict[str, Any]) -> str:
        """Return the 65-byte signature of an EIP-712 document, 0x hex."""
        return messages.sign("0x" + bytes(self._account.key).hex(), document)

    def sign_text(self, text: str) -> str:
        """Return the 65-byte EIP-191 signature of a text, 0x hex, as ``personal_sign`` does."""
        return "0x" + bytes(self._account.sign_message(encode_defunct(text=text)).signature).hex()

    def sign_transaction(self, transaction: dict[str, Any]) -> bytes:
        return bytes(self._account.sign_transaction(transaction).raw_transaction)


def checked_address(text: str) -> str:
    """Return an address with EIP-55 checksum. Raises ConfigError: malformed, or wrong."""
    from eth_utils.address import is_hex_address, to_checksum_address

    digits = text.removeprefix("0x")
    plain = digits in (digits.lower(), digits.upper())  # without a checksum
    if not is_hex_address(text) or not (plain or text == to_checksum_address(text)):
        raise ConfigError(
            "bad-address",
            f"address is {text!r:.100}; expected 0x and 40 hex digits",
            remedy="Copy the address exactly: upper and lower case are a checksum.",
        )
    return str(to_checksum_address(text))


def siwe_message(address: str, challenge: Mapping[str, Any], now: datetime | None = None) -> str:
    """Return the EIP-4361 sign-in text for a challenge of ``POST /v1/auth/nonce``.

    Args:
        address: checksummed.
        challenge: ``domain``, ``uri``, ``chain_id``, ``nonce``, ``statement``, ``expires_at``.
    """
    issued_at = (now or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return (
        f"{challenge['domain']} wants you to sign in with your Ethereum account:\n{address}\n\n"
        f"{challenge['statement']}\n\n"
        f"URI: {challenge['uri']}\nVersion: 1\nChain ID: {challenge['chain_id']}\nNonce: {challenge['nonce']}\n"
        f"Issued At: {issued_at}\nExpiration Time: {challenge['expires_at']}"
    )


@dataclass(frozen=True, slots=True)
class Block:
    """Block number and ``timestamp`` in Unix seconds."""

    number: int
    timestamp: int


@contextmanager
def chain_errors() -> Iterator[None]:
    """Translate web3's errors. A transaction not mined in time is ``NOT_MINED``."""
    from requests.exceptions import RequestException
    from web3.exceptions import (
        BadFunctionCallOutput,
        BadResponseFormat,
        BlockNotFound,
        ContractLogicError,
        TimeExhausted,
        TransactionNotFound,
        Web3RPCError,
    )

    no_answer = (
        RequestException,
        Web3RPCError,
        BadResponseFormat,
        BadFunctionCallOutput,
        BlockNotFound,
        TransactionNotFound,
        json.JSONDecodeError,
    )

    try:
        yield
    except ContractLogicError as error:
        remedy = "See contracts/src/interfaces/ for the condition of each error."
        raise ZooError("transaction-refused", f"the contract refuses: {_reason(error)}", remedy=remedy) from error
    except TimeExhausted as error:
        raise Unreachable(NOT_MINED, str(error), remedy="The fee may be too low now; try again.") from error
    except no_answer as error:  # also a proxy's page, or a node that has not synchronised to the deployment
        raise Unreachable(
            "chain-unreachable", f"the chain does not answer: {error}", remedy="Try again; check the RPC address."
        ) from error


def _reason(error: Any) -> str:
    """Return the contract's error with its arguments, or else the node's text."""
    data = error.data
    if not isinstance(data, str) or not re.fullmatch("0x([0-9a-fA-F]{2}){4,}", data):
        return str(error)
    name, text = decode_revert(bytes.fromhex(data[2:]))
    return text if name == "Unknown" else f"{name}({text})"
