"""Merkle tree of an epoch's rewards: cumulative earnings per account (Rewards.sol)."""

from collections.abc import Mapping
from dataclasses import dataclass

from eth_abi.abi import encode as abi_encode

from zoo_protocol import merkle
from zoo_protocol.hashing import from_hex, to_hex


@dataclass(frozen=True, slots=True)
class RewardTree:
    """Root and proofs as 0x hex; a proof leads from its account's leaf to the root."""

    root: str
    proofs: dict[str, list[str]]


def reward_leaf(account: str, cumulative: int) -> bytes:
    """Return the leaf of an account that has earned ``cumulative`` wei in total."""
    return merkle.leaf_hash(abi_encode(["address", "uint256"], [account, cumulative]))


def build_tree(earned: Mapping[str, int]) -> RewardTree:
    """Return the tree over all accounts, in the order of their addresses.

    Args:
        earned: total earnings by account, in wei.

    Raises:
        ValueError: ``earned`` is empty.
    """
    accounts = sorted(earned, key=lambda account: int(account, 16))
    levels = merkle.levels([reward_leaf(account, earned[account]) for account in accounts])
    proofs = {
        account: [to_hex(node) for node in merkle.proof_in(levels, index)] for index, account in enumerate(accounts)
    }
    return RewardTree(to_hex(levels[-1][0]), proofs)


def proves(root: str, account: str, cumulative: int, proof: list[str]) -> bool:
    """Return whether the contract accepts the proof under ``root`` (0x hex)."""
    return merkle.verify(from_hex(root), reward_leaf(account, cumulative), [from_hex(node) for node in proof])
