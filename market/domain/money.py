"""Money arithmetic, the same to the wei as in the JobEscrow contract.

Every amount is an ``int`` in wei of ZEN (18 decimals); no float ever touches one. Both divisions floor, and the
remainder has a home: it stays with the payer.
"""

from dataclasses import dataclass

from market.domain.network import BPS, HOUR_US, ZEN

MAX_FEE_BPS = 1_000
"""Highest fee that the JobEscrow contract accepts."""

CONVICTED_BPS = 6_600
"""Of the false segments that are drawn, so many are convicted even if verifiers with a quarter of the stake lie."""

_UINT256_DIGITS = 78


class MoneyError(ValueError):
    """An amount that cannot be. ``code`` is stable, the message says what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Split:
    """Where an escrow goes at settlement, in wei: ``paid + fee == gross`` and ``gross + refund`` is the escrow."""

    paid: int
    """To the providers, net of the fee."""
    fee: int
    """To the treasury."""
    refund: int
    """Back to the payer."""
    gross: int
    """What the payer spends."""


def unit_price(price_wei_per_gpu_hour: int, unit_weight_us: int) -> int:
    """Gross price in wei of one unit of work, a multiple of 10,000 wei (0 where it would be less).

    Args:
        price_wei_per_gpu_hour: clearing price in wei of ZEN per GPU-hour.
        unit_weight_us: size of the unit in reference GPU-microseconds.

    Raises:
        MoneyError: ``negative_amount`` if an argument is negative.
    """
    _require_not_negative(price_wei_per_gpu_hour=price_wei_per_gpu_hour, unit_weight_us=unit_weight_us)
    exact = price_wei_per_gpu_hour * unit_weight_us // HOUR_US
    return exact - exact % BPS


def max_deterred_unit_price(penalty_wei: int, segments: int, sampling_bps: int) -> int:
    """Highest gross price in wei of a unit at which falsifying one of its segments does not pay.

    With P the least penalty of a cheat, d the share of drawn false segments that count as convicted, N the segments of
    a unit, s the rate at which they are drawn and R the unit's price, cheating is deterred while
    ``P * d >= (R / N) * (1 - s) / s``; the JobEscrow contract refuses orders beyond. At a rate of 100 % there is no
    bound, which 2**256 - 1 stands for.
    """
    _require_not_negative(penalty_wei=penalty_wei, segments=segments, sampling_bps=sampling_bps)
    if sampling_bps >= BPS:
        return 2**256 - 1
    return penalty_wei * CONVICTED_BPS * segments * sampling_bps // ((BPS - sampling_bps) * BPS)


def max_disputable_unit_price(referee_fee_wei: int, segments: int) -> int:
    """Highest gross price in wei of a unit whose disputes do not cost referees more than they bring.

    A referee replays one of the unit's ``segments`` for a fixed fee. What the replay costs is less than the segment's
    share of the unit's price, or no provider would work for it; so that share may be the fee at most (decision 2).
    """
    _require_not_negative(referee_fee_wei=referee_fee_wei, segments=segments)
    return referee_fee_wei * segments


def split(escrowed: int, unit_gross: int, units: int, fee_bps: int) -> Split:
    """How ``escrowed`` wei divide when ``units`` units at ``unit_gross`` wei each are paid.

    Args:
        escrowed: the job's whole escrow in wei.
        unit_gross: price of a unit as :func:`unit_price` gives it.
        units: number of verified units.
        fee_bps: treasury's share of what is paid, fixed when the job was opened.

    Raises:
        MoneyError: ``negative_amount``; ``inexact_unit_price`` if the price is no multiple of 10,000 wei;
            ``fee_too_high`` beyond 10 %; ``budget_exceeded`` if the units cost more than the escrow.
    """
    _require_not_negative(escrowed=escrowed, unit_gross=unit_gross, units=units, fee_bps=fee_bps)
    if unit_gross % BPS:
        raise MoneyError("inexact_unit_price", f"unit_gross={unit_gross} is no multiple of {BPS} wei; use unit_price()")
    if fee_bps > MAX_FEE_BPS:
        raise MoneyError("fee_too_high", f"fee_bps={fee_bps} exceeds the highest fee of {MAX_FEE_BPS} basis points")
    gross = unit_gross * units
    if gross > escrowed:
        raise MoneyError("budget_exceeded", f"{units} units of {unit_gross} wei cost {gross}, the escrow is {escrowed}")
    fee = gross * fee_bps // BPS
    return Split(paid=gross - fee, fee=fee, refund=escrowed - gross, gross=gross)


def format_zen(wei: int) -> str:
    """An amount that is not negative in ZEN: exact, without trailing zeros."""
    whole, fraction = divmod(wei, ZEN)
    return f"{whole:,}.{fraction:018d}".rstrip("0").rstrip(".")


def format_amount(wei: int) -> str:
    """An amount for messages: people think in ZEN, requests are written in wei."""
    return f"{format_zen(wei)} ZEN ({wei} wei)"


def parse_wei(text: str) -> int:
    """The amount in a decimal string of wei, as JSON carries it.

    Raises:
        MoneyError: ``invalid_wei`` unless the text is a plain decimal integer below 2**256 without sign, leading
            zeros, fraction or exponent.
    """
    digits = isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= _UINT256_DIGITS
    if not digits or (text[0] == "0" and text != "0") or int(text) >= 2**256:
        raise MoneyError(
            "invalid_wei",
            f"{str(text)[:80]!r} is no amount in wei: write a whole number of wei (1 ZEN = 10**18 wei) as a string of "
            'decimal digits, such as "2500000000000000000"',
        )
    return int(text)


def _require_not_negative(**amounts: int) -> None:
    for name, amount in amounts.items():
        if amount < 0:
            raise MoneyError("negative_amount", f"{name}={amount} is negative; give 0 or more")
