"""The highest price that a job can pay."""

from market.domain.network import BPS, HOUR_US
from market.jobs.models import Job


def highest_price(budget_wei: int, max_price_wei: int, units: int, unit_weight_us: int) -> int:
    """Highest price in wei per GPU-hour that the payer takes and at which the budget pays all units.

    The unit's price is rounded down to a multiple of 10,000 wei, so it stays payable until the exact price reaches
    the next multiple beyond what one unit may cost.
    """
    per_unit = budget_wei // units
    limit = per_unit - per_unit % BPS + BPS
    return min(max_price_wei, (limit * HOUR_US - 1) // unit_weight_us)


def job_limit(job: Job) -> int:
    """The limit at which a job bids, in wei per GPU-hour."""
    return highest_price(job.escrowed_wei, job.price_cap_wei, job.units_ordered, job.unit_weight_us)
