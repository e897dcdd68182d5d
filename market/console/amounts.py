"""Amounts that people type, in ZEN."""

from decimal import Context, Decimal

from market.domain.network import ZEN
from market.platform.http.errors import InvalidRequest

_TOO_LARGE = 2**96
_EXACT = Context(prec=200)
"""More digits than a field has characters, so that no amount is rounded."""


def parse_zen(text: str, field: str) -> int:
    """Return an amount in ZEN with at most 18 decimals as wei. Raises InvalidRequest."""
    try:
        wei = _EXACT.multiply(Decimal(text.strip()), ZEN)
        if 0 < wei < _TOO_LARGE and wei == wei.to_integral_value():
            return int(wei)
    except ArithmeticError:
        pass
    detail = f"{field} is {text[:40]!r}; expected an amount in ZEN above 0 with at most 18 decimals"
    raise InvalidRequest(detail, field=field, remedy="Correct the field.")


def parse_cap(text: str, field: str) -> int | None:
    """Return a cap as wei; None for an empty field. Raises InvalidRequest."""
    return parse_zen(text, field) if text.strip() else None
