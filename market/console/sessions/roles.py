"""Roles that the contracts grant to a wallet."""

from collections.abc import Sequence

from eth_utils.crypto import keccak

from market.chain.contracts.codec import View
from market.chain.views import ChainViews

_GRANTS = (
    ("admin", "Timelock", "PROPOSER_ROLE"),
    ("guardian", "JobEscrow", "GUARDIAN_ROLE"),
    ("guardian", "Rewards", "GUARDIAN_ROLE"),
    ("operator", "JobEscrow", "OPERATOR_ROLE"),
)
"""Role of the console, contract, role of the contract."""


def read_roles(views: ChainViews, addresses: Sequence[str]) -> dict[str, frozenset[str]]:
    """Return the roles of each address at the latest block. Raises ChainError."""
    asked: list[View[bool]] = [
        View(contract, "hasRole", [keccak(text=role), address])
        for address in addresses
        for _, contract, role in _GRANTS
    ]
    answers = iter(views.many(asked, "latest"))
    return {address: frozenset({role for role, _, _ in _GRANTS if next(answers)}) for address in addresses}
