"""Amounts of ZEN as people write them and as the chain counts them: exact, without floating point."""

from decimal import ROUND_DOWN, Decimal, InvalidOperation

from zoo_compute.errors import ConfigError

ZEN = 10**18
_LARGEST_WEI = 2**96 - 1


def parse_zen(text: str | int | Decimal, name: str = "amount") -> int:
    """Wei of an amount in ZEN (``"2.5"``, ``5000``), or of one in wei (``"2500 wei"``).

    Raises:
        ConfigError: no number, negative, finer than a wei, or beyond 2**96 - 1 wei; ``name`` says which it was.
    """
    wrong = ConfigError(
        "amount-malformed",
        f"{name} is {text!r}, which is no exact amount of ZEN from 0 to {format_zen(_LARGEST_WEI)}",
        remedy="Write it in ZEN with at most 18 decimals, such as 2.5, or in wei, such as '2500 wei'. "
        "In Python give a string, an int or a Decimal, never a float.",
    )
    if isinstance(text, float | bool):
        raise wrong
    plain = str(text).strip()
    unit = ZEN
    if plain.lower().endswith("wei"):
        plain, unit = plain[:-3].strip(), 1
    try:
        wei = Decimal(plain) * unit
    except InvalidOperation:
        raise wrong from None
    if not wei.is_finite() or not 0 <= wei <= _LARGEST_WEI or wei != wei.to_integral_value(ROUND_DOWN):
        raise wrong
    return int(wei)


def format_zen(wei: int, places: int = 18) -> str:
    """An amount of wei in ZEN: rounded down to ``places`` decimals, without trailing zeros."""
    whole, fraction = divmod(abs(wei), ZEN)
    digits = f"{fraction:018d}"[:places].rstrip("0")
    return f"{'-' if wei < 0 else ''}{whole:,}{'.' + digits if digits else ''}"
