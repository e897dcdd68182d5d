"""Development accounts, derived from the public test mnemonic."""

import os
from dataclasses import dataclass

from eth_account import Account
from eth_account.hdaccount.mnemonic import Mnemonic
from eth_account.types import Language

from zoo_compute.base.errors import DevnetError

TEST_MNEMONIC = "test test test test test test test test test test test junk"


@dataclass(frozen=True, slots=True)
class DevAccount:
    """Wallet with a publicly known key."""

    address: str
    private_key: str


@dataclass(frozen=True, slots=True)
class DevAccounts:
    """Accounts of a devnet; ``treasury`` is the contracts' admin and guardian."""

    operator: DevAccount
    challenger: DevAccount
    acknowledger: DevAccount
    admin: DevAccount
    treasury: DevAccount
    user: DevAccount
    providers: list[DevAccount]
    verifiers: list[DevAccount]


def mnemonic() -> str:
    """Return ``ZOO_DEVNET_MNEMONIC``, or the default phrase of anvil, Hardhat and Ganache.

    Raises:
        DevnetError: the variable is not a BIP-39 phrase.
    """
    phrase = os.environ.get("ZOO_DEVNET_MNEMONIC", TEST_MNEMONIC)
    if not Mnemonic(Language.ENGLISH).is_mnemonic_valid(phrase):
        raise DevnetError(
            "devnet-mnemonic-invalid",
            "ZOO_DEVNET_MNEMONIC is invalid; expected a BIP-39 phrase of English words",
            remedy="Unset it to use the test phrase, or give 12 words with a correct checksum.",
        )
    return phrase


def derive(providers: int, verifiers: int) -> DevAccounts:
    """Return the accounts of a devnet with that many nodes; they depend on the mnemonic only."""
    Account.enable_unaudited_hdwallet_features()
    phrase = mnemonic()

    def account(index: int) -> DevAccount:
        wallet = Account.from_mnemonic(phrase, account_path=f"m/44'/60'/0'/0/{index}")
        return DevAccount(str(wallet.address), "0x" + bytes(wallet.key).hex())

    return DevAccounts(
        operator=account(0),
        challenger=account(3 + providers + verifiers),
        acknowledger=account(account_count(providers, verifiers)),
        admin=account(account_count(providers, verifiers) + 1),
        treasury=account(1),
        user=account(2),
        verifiers=[account(3 + index) for index in range(verifiers)],
        providers=[account(3 + verifiers + index) for index in range(providers)],
    )


def account_count(providers: int, verifiers: int) -> int:
    """Return the number of accounts to fund: all that send transactions."""
    return 4 + providers + verifiers
