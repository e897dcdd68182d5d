"""Output of quotes, and consent to them."""

from datetime import timedelta
from typing import Any

from zoo_compute.base.amounts import format_zen, short_zen
from zoo_compute.base.models import Quote
from zoo_compute.client.job import Approve
from zoo_compute.terminal.confirmation import confirm
from zoo_compute.terminal.output import print_facts, print_note


def print_quote(found: Quote) -> None:
    """Print a quote, then its advice on standard error."""
    last, seconds = found.cost_at_last_price_wei, found.expected_seconds
    by_size = ", ".join(f"{name} {value}" for name, value in found.settings_by_size.items())
    print_facts(
        {
            "set by the model's size": by_size or "nothing",
            "learning rates": found.rate_schedule or "unknown",
            "work units": found.units,
            "training at reference speed": "unknown" if seconds is None else f"{timedelta(seconds=round(seconds))}",
            "over home links": _throughput(found.expected_throughput),
            "cost at the reserve price": f"{short_zen(found.cost_at_reserve_wei)} ZEN",
            "cost at the last price": "no trade yet" if last is None else f"{short_zen(last)} ZEN",
            "maximum cost": f"{short_zen(found.cost_at_max_price_wei)} ZEN",
            "highest price it trades at": f"{short_zen(found.highest_payable_price_wei)} ZEN per GPU-hour",
            "network fee": f"{found.fee_bps / 100:g} % of payments, included",
            "detection of one false segment": f"{found.detection_probability:.1%} in a new provider's unit, "
            f"{found.least_detection_probability:.1%} at least",
        }
    )
    _print_advice(found)


def approval(*, yes: bool) -> Approve:
    """Return a function that shows what a job costs and asks for consent."""

    def approve(found: Quote, budget_wei: int) -> None:
        if yes:
            return
        _print_advice(found)
        expected = found.cost_at_last_price_wei or found.cost_at_reserve_wei
        plan = {
            "into escrow": f"{format_zen(budget_wei)} ZEN; what is not spent comes back",
            "expected cost": f"{short_zen(expected)} ZEN",
            "maximum cost": f"{short_zen(found.cost_at_max_price_wei)} ZEN",
        }
        confirm(plan, "Submit?", yes=False)

    return approve


def _print_advice(found: Quote) -> None:
    for point in found.advice:
        print_note(f"{point['detail']} {point['remedy']}  [{point['code']}]")


def _throughput(expected: dict[str, Any] | None) -> str:
    if expected is None:
        return "unknown"
    return (
        f"{expected['share_of_ideal']:.0%} of the throughput in one place, {expected['round_seconds']:.3g} s per round "
        f"({expected['down_mbps']:g}/{expected['up_mbps']:g} Mb/s, an estimate)"
    )
