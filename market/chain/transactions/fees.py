"""EIP-1559 fees of the market's transactions. All amounts in wei per gas."""

from dataclasses import dataclass

# Nodes require 10 % more for a replacement, some 12.5 %; both fees must rise.
_BUMP_NUMERATOR, _BUMP_DENOMINATOR = 9, 8


@dataclass(frozen=True, slots=True)
class Fees:
    """``max_fee`` bounds base fee plus tip; ``priority_fee`` is the tip."""

    max_fee: int
    priority_fee: int


def quote(base_fee: int, suggested_tip: int, cap: int) -> Fees:
    """Return the fees of a new transaction. Within the cap, they allow the base fee to double."""
    tip = max(1, suggested_tip)  # a factor cannot raise a tip of zero
    max_fee = min(cap, 2 * base_fee + tip)
    return Fees(max_fee, min(tip, max_fee))


def replacement(old: Fees, current: Fees, cap: int) -> Fees | None:
    """Return fees that outbid ``old`` and are at least ``current``; None beyond the cap."""
    raised = Fees(max(_bump(old.max_fee), current.max_fee), max(_bump(old.priority_fee), current.priority_fee))
    if raised.max_fee > cap:
        return None
    return Fees(raised.max_fee, min(raised.priority_fee, raised.max_fee))


def _bump(fee: int) -> int:
    return -(-fee * _BUMP_NUMERATOR // _BUMP_DENOMINATOR)
