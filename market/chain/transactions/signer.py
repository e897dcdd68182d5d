"""The market's hot keys. No log, error or dump contains a key."""

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

from eth_account import Account
from eth_account.signers.local import LocalAccount
from pydantic import SecretStr

from market.chain.errors import UnusableKey
from market.settings import KeySource, Settings
from zoo_protocol.hashing import to_hex
from zoo_protocol.messages import signable


class Signer:
    """Signer with one key.

    Raises:
        UnusableKey: the key is not a private key of the curve secp256k1.
    """

    def __init__(self, key: SecretStr) -> None:
        try:
            self._account: LocalAccount = Account.from_key(key.get_secret_value().strip())
        except Exception:  # libraries raise many types, and some messages contain the key
            raise UnusableKey("the key is not 32 bytes in hex that lie on the curve secp256k1") from None
        self.address = str(self._account.address)

    @classmethod
    def from_keystore(cls, path: Path, password: SecretStr) -> "Signer":
        """Return the signer of an encrypted file (Web3 Secret Storage version 3).

        Raises:
            UnusableKey: the file is missing or not a keystore, or the password is wrong.
        """
        try:
            key = Account.decrypt(json.loads(path.read_text()), password.get_secret_value())
        except OSError as error:
            raise UnusableKey(f"keystore {path}: {error.strerror}") from None
        except Exception as error:  # as above
            raise UnusableKey(
                f"keystore {path} cannot be opened ({type(error).__name__}): it is not a keystore of version 3, or the "
                "password is wrong"
            ) from None
        return cls(SecretStr(bytes(key).hex()))

    @classmethod
    def from_settings(cls, settings: Settings) -> "Signer":
        """Return the operator's signer.

        Raises:
            UnusableKey: the settings have no usable key.
        """
        return cls._from_source(settings.key_source("operator"), "sends transactions")

    @classmethod
    def acknowledger(cls, settings: Settings) -> "Signer":
        """Return the acknowledger's signer. Raises UnusableKey."""
        return cls._from_source(settings.key_source("acknowledger"), "acknowledges commitments")

    @classmethod
    def challenger(cls, settings: Settings, *, previous: bool = False) -> "Signer | None":
        """Return the (previous) challenger's signer; None without a key. Raises UnusableKey."""
        source = settings.key_source("previous_challenger" if previous else "challenger")
        return cls._from_source(source, "disputes units") if source.is_set else None

    @classmethod
    def _from_source(cls, source: KeySource, use: str) -> "Signer":
        if source.key is not None:
            return cls(source.key)
        if source.keystore is None:
            raise UnusableKey(f"this process {use}: set {source.name}_KEYSTORE or {source.name}_KEY")
        password, file = source.password, source.password_file
        if password is None:
            assert file is not None, "the settings require one of both"
            try:
                password = SecretStr(file.read_text().rstrip("\r\n"))
            except OSError as error:
                raise UnusableKey(f"password file {file}: {error.strerror}") from None
        return cls.from_keystore(source.keystore, password)

    def __repr__(self) -> str:
        return f"Signer({self.address})"

    def sign(self, transaction: dict[str, Any]) -> tuple[str, bytes]:
        """Return (hash, raw bytes) of the signed transaction."""
        signed = self._account.sign_transaction(transaction)
        return "0x" + signed.hash.hex(), bytes(signed.raw_transaction)

    def derived(self, purpose: bytes) -> bytes:
        """Return a secret of 32 bytes, a function of the key and the purpose."""
        return hmac.new(bytes(self._account.key), purpose, hashlib.sha256).digest()

    def sign_typed_data(self, document: dict[str, Any]) -> str:
        """Return the 65-byte signature of an EIP-712 document as 0x hex."""
        return to_hex(bytes(self._account.sign_message(signable(document)).signature))
