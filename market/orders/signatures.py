"""EIP-712 documents to sign, and their signatures. Pure."""

from typing import Any

from market.platform.http.errors import InvalidSignature
from zoo_protocol.hashing import from_hex, to_hex
from zoo_protocol.messages import recover

_HALF_ORDER = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0  # of secp256k1


def wallet_form(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with integers as decimal strings, which sign to the same hash."""
    message = {key: str(value) if isinstance(value, int) else value for key, value in document["message"].items()}
    return {**document, "message": message}


def require_signature(signer: str, document: dict[str, Any], signature: str, field: str) -> str:
    """Return the signer's signature in the contracts' form: low s, v of 27 or 28.

    Raises:
        InvalidSignature: malformed, over another message or by another key.
    """
    name = document["primaryType"]
    try:
        raw = from_hex(signature, 65)
    except ValueError as error:
        raise InvalidSignature(str(error), field=field, remedy=f"Give the 65-byte signature of the {name}.") from error
    v = raw[64] + 27 if raw[64] < 27 else raw[64]
    if v not in (27, 28) or int.from_bytes(raw[32:64], "big") > _HALF_ORDER:
        raise InvalidSignature(
            f"{field} is not canonical; expected s in the lower half and v of 27 or 28.",
            field=field,
            remedy="Sign with a current wallet.",
        )
    canonical = to_hex(raw[:64] + bytes([v]))
    try:
        recovered = recover(document, canonical)
    except ValueError:
        recovered = "no address"
    if recovered != signer:
        raise InvalidSignature(
            f"The signature over the {name} recovers to {recovered}; the caller is {signer}.",
            field=field,
            remedy=f"Sign the {name} of a fresh quote for this body with the caller's wallet.",
        )
    return canonical
