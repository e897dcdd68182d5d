"""Names and hashes of the contracts' roles."""

from functools import cache

from zoo_protocol.contracts import CONTRACTS, artifact
from zoo_protocol.hashing import keccak, to_hex

DEFAULT_ADMIN_ROLE = "DEFAULT_ADMIN_ROLE"


@cache
def roles_of(contract: str) -> tuple[str, ...]:
    """Return the names of a contract's roles, by its constants."""
    views = (item["name"] for item in artifact(contract).abi if item["type"] == "function" and not item["inputs"])
    return tuple(sorted(name for name in views if name.endswith("_ROLE")))


def role_hash(name: str) -> str | None:
    """Return the bytes32 of a role as 0x hex; None for an unknown name."""
    return _hashes().get(name)


def role_name(role: str) -> str:
    """Return the name of a role's bytes32; an unknown one as it is."""
    return next((name for name, known in _hashes().items() if known == role), role)


@cache
def _hashes() -> dict[str, str]:
    names = {name for contract in CONTRACTS for name in roles_of(contract)}
    return {name: to_hex(bytes(32) if name == DEFAULT_ADMIN_ROLE else keccak(name.encode())) for name in names}
