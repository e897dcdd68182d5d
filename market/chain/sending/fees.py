"""EIP-1559 fees of our transactions. All amounts in wei per gas."""

from dataclasses import dataclass

# Nodes demand at least 10 % more for a replacement, some 12.5 %; both fees must rise.
_BUMP_NUMERATOR, _BUMP_DENOMINATOR = 9, 8


@dataclass(frozen=True, slots=True)
class Fees:
    """``max_fee`` bounds base fee plus tip; ``priority_fee`` is the tip."""

    max_fee: int
    priority_fee: int


def quote(base_fee: int, suggested_tip: int, cap: int) -> Fees:
    """Fees for a new transaction: room for the base fee to double, within the cap."""
    tip = max(1, suggested_tip)  # a tip of zero could not be raised by a factor
    max_fee = min(cap, 2 * base_fee + tip)
    return Fees(max_fee, min(tip, max_fee))


def replacement(old: Fees, current: Fees, cap: int) -> Fees | None:
    """Fees that outbid ``old`` at the same nonce, at least ``current``; None if that breaks the cap."""
    raised = Fees(max(_bump(old.max_fee), current.max_fee), max(_bump(old.priority_fee), current.priority_fee))
    if raised.max_fee > cap:
        return None
    return Fees(raised.max_fee, min(raised.priority_fee, raised.max_fee))


def _bump(fee: int) -> int:
    return -(-fee * _BUMP_NUMERATOR // _BUMP_DENOMINATOR)
