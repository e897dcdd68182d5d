"""Amounts in ZEN for people: the console and the commands show the same text. Pure."""

_ZEN = 10**18
_FEW_DIGITS = 6


def short_zen(wei: int, *, is_limit: bool = False) -> str:
    """Return wei as ZEN, rounded to about six significant digits and then marked by ``≈``.

    Args:
        is_limit: round up, because a stated maximum is never below what can be spent; else down.
    """
    whole, fraction = divmod(abs(wei), _ZEN)
    length = len(str(whole))
    small = 22 - len(str(fraction))  # four significant digits of the fraction
    digits = max(2 if length < _FEW_DIGITS else 0, _FEW_DIGITS - length) if whole else small
    step: int = 10 ** (18 - min(18, digits))
    rounded = (-(-wei // step) if is_limit else wei // step) * step
    whole, fraction = divmod(abs(rounded), _ZEN)
    mark, sign = "" if rounded == wei else "≈\u00a0", "−" if wei < 0 else ""
    return f"{mark}{sign}{whole:,}.{fraction:018d}".rstrip("0").rstrip(".")
