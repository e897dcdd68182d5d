"""Exact conversion between ZEN and wei, without floating point."""

import re
from decimal import Decimal

from zoo_compute.base.errors import ConfigError

ZEN = 10**18
_LARGEST_WEI = 2**96 - 1
_AMOUNT = re.compile(r"\s*(?P<whole>\d{1,30})(?:\.(?P<fraction>\d{1,18}))?\s*(?P<wei>wei)?\s*", re.ASCII)


def parse_zen(text: str | int | Decimal, name: str = "amount") -> int:
    """Return the wei of an amount in ZEN (``"2.5"``, ``5000``) or in wei (``"2500 wei"``).

    Raises:
        ConfigError: not a number, negative, finer than 1 wei, or beyond 2**96 - 1 wei; names ``name``.
    """
    plain = format(text, "f") if isinstance(text, Decimal) else str(text)
    found = None if isinstance(text, float | bool) else _AMOUNT.fullmatch(plain)
    wei = -1
    if found is not None and found["wei"]:
        wei = -1 if found["fraction"] else int(found["whole"])
    elif found is not None:
        wei = int(found["whole"]) * ZEN + int((found["fraction"] or "").ljust(18, "0"))
    if not 0 <= wei <= _LARGEST_WEI:
        raise ConfigError(
            "amount-malformed",
            f"{name} is {text!r}; expected an exact amount from 0 to {format_zen(_LARGEST_WEI)} ZEN",
            remedy="Write ZEN with at most 18 decimals, such as 2.5, or wei, such as '2500 wei'. "
            "In Python, pass a string, an int or a Decimal, not a float.",
        )
    return wei


def format_zen(wei: int, places: int = 18) -> str:
    """Return wei as ZEN, rounded down to ``places`` decimals, without trailing zeros."""
    whole, fraction = divmod(abs(wei), ZEN)
    digits = f"{fraction:018d}"[:places].rstrip("0")
    return f"{'-' if wei < 0 else ''}{whole:,}{'.' + digits if digits else ''}"
