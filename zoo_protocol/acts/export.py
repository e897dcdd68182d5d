"""Export of a prepared act for a wallet elsewhere: raw call data, or a Safe transaction."""

from typing import Any

from zoo_protocol.acts.calls import Contracts, PreparedAct
from zoo_protocol.hashing import to_hex

_BUILDER_VERSION = "1.18.0"  # of the Safe transaction builder, whose file format this is


def raw_transaction(prepared: PreparedAct, contracts: Contracts) -> dict[str, Any]:
    """Return chain id, recipient, value and call data of the transaction."""
    return {"chain_id": contracts.chain_id, "to": prepared.to, "value": "0", "data": to_hex(prepared.data)}


def safe_transaction(prepared: PreparedAct, contracts: Contracts, *, created_at_ms: int) -> dict[str, Any]:
    """Return a file for the transaction builder of a Safe.

    Args:
        created_at_ms: Unix time in milliseconds.
    """
    return {
        "version": "1.0",
        "chainId": str(contracts.chain_id),
        "createdAt": created_at_ms,
        "meta": {
            "name": prepared.title,
            "description": " ".join(prepared.words),
            "txBuilderVersion": _BUILDER_VERSION,
        },
        "transactions": [
            {
                "to": prepared.to,
                "value": "0",
                "data": to_hex(prepared.data),
                "contractMethod": None,
                "contractInputsValues": None,
            }
        ],
    }
