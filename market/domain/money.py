"""Money arithmetic, equal to the wei to the JobEscrow contract.

Every amount is an ``int`` in wei of ZEN (18 decimals), never a float. Both divisions floor; the payer keeps the
remainder.
"""

from dataclasses import dataclass

from market.domain.network import BPS, HOUR_US, ZEN

MAX_FEE_BPS = 1_000
"""Highest fee that the JobEscrow contract accepts."""

UPHELD_BPS = 6_600
"""Share of sampled false segments whose dispute is upheld even if verifiers with a quarter of the stake lie."""

_UINT256_DIGITS = 78


class MoneyError(ValueError):
    """Invalid amount. ``code`` is stable."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Split:
    """Division of an escrow in wei: ``paid + fee == gross``; the escrow is ``gross + refund``."""

    paid: int
    """To the providers, net of the fee."""
    fee: int
    """To the treasury."""
    refund: int
    """Back to the payer."""
    gross: int


def unit_price(price_wei_per_gpu_hour: int, unit_weight_us: int) -> int:
    """Return the gross price of one work unit in wei, a multiple of 10,000 or 0.

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
    """Return the highest gross unit price in wei at which one false segment does not pay.

    The bound is ``P * d >= (R / N) * (1 - s) / s``, which the JobEscrow contract enforces:

    - P is the lowest penalty for false work, d the share of sampled false segments whose dispute is upheld.
    - N is the number of segments of a unit, s their sampling rate, R the unit's price.

    The result is 2**256 - 1 at a rate of 100 %, where no bound exists.
    """
    _require_not_negative(penalty_wei=penalty_wei, segments=segments, sampling_bps=sampling_bps)
    if sampling_bps >= BPS:
        return 2**256 - 1
    return penalty_wei * UPHELD_BPS * segments * sampling_bps // ((BPS - sampling_bps) * BPS)


def may_start_unit(undecided_wei: int, gross_wei: int, penalty_wei: int, segments: int, sampling_bps: int) -> bool:
    """Return True if one more false unit, undecided together with the others, does not pay.

    One penalty is for all units that a provider has undecided. So their value V is bounded as that of one segment:
    ``P * d >= V * (1 - p) / p``, where p is the chance that one of a unit's ``segments`` is sampled. A single unit may
    always start: the order's price is bounded.

    Args:
        undecided_wei: gross price of the provider's other undecided units.
        gross_wei: gross price of the unit.
        penalty_wei: penalty for false work at the provider's stake.
    """
    drawn_bps = min(BPS, segments * sampling_bps)
    return not undecided_wei or undecided_wei + gross_wei <= max_deterred_unit_price(penalty_wei, 1, drawn_bps)


def max_disputable_unit_price(referee_fee_wei: int, segments: int) -> int:
    """Return the highest gross unit price at which a dispute costs a referee at most its fee.

    A referee replays one of the unit's ``segments`` for a fixed fee. The segment's share of the price is an upper bound
    of that cost (decision 2).
    """
    _require_not_negative(referee_fee_wei=referee_fee_wei, segments=segments)
    return referee_fee_wei * segments


def split(escrowed: int, unit_gross: int, units: int, fee_bps: int) -> Split:
    """Divide ``escrowed`` wei when ``units`` units at ``unit_gross`` wei each are paid.

    Args:
        escrowed: the job's whole escrow in wei.
        unit_gross: price of a unit, from :func:`unit_price`.
        units: number of verified units.
        fee_bps: treasury's share of the gross pay, fixed when the job was opened.

    Raises:
        MoneyError: ``negative_amount``; ``inexact_unit_price`` if the price is not a multiple of 10,000 wei;
            ``fee_too_high`` above 10 %; ``budget_exceeded`` if the units cost more than the escrow.
    """
    _require_not_negative(escrowed=escrowed, unit_gross=unit_gross, units=units, fee_bps=fee_bps)
    if unit_gross % BPS:
        raise MoneyError("inexact_unit_price", f"unit_gross={unit_gross} is not a multiple of {BPS}; use unit_price()")
    if fee_bps > MAX_FEE_BPS:
        raise MoneyError("fee_too_high", f"fee_bps={fee_bps} exceeds the highest fee of {MAX_FEE_BPS} basis points")
    gross = unit_gross * units
    if gross > escrowed:
        raise MoneyError("budget_exceeded", f"{units} units of {unit_gross} wei cost {gross}, the escrow is {escrowed}")
    fee = gross * fee_bps // BPS
    return Split(paid=gross - fee, fee=fee, refund=escrowed - gross, gross=gross)


def format_zen(wei: int) -> str:
    """Return an amount in ZEN: exact, without trailing zeros. It must not be negative."""
    whole, fraction = divmod(wei, ZEN)
    return f"{whole:,}.{fraction:018d}".rstrip("0").rstrip(".")


def format_amount(wei: int) -> str:
    """Return an amount for messages, in ZEN and wei."""
    return f"{format_zen(wei)} ZEN ({wei} wei)"


def parse_wei(text: str) -> int:
    """Return the amount of a decimal string of wei, the form in JSON.

    Raises:
        MoneyError: ``invalid_wei`` unless the text is a plain decimal integer below 2**256 without sign, leading
            zeros, fraction or exponent.
    """
    digits = isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= _UINT256_DIGITS
    if not digits or (text[0] == "0" and text != "0") or int(text) >= 2**256:
        raise MoneyError(
            "invalid_wei",
            f"{str(text)[:80]!r} is not an amount in wei; expected a decimal string of a whole number of wei, such as "
            '"2500000000000000000". 1 ZEN is 10**18 wei.',
        )
    return int(text)


def _require_not_negative(**amounts: int) -> None:
    for name, amount in amounts.items():
        if amount < 0:
            raise MoneyError("negative_amount", f"{name}={amount} is negative; give 0 or more")
