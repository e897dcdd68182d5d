"""Price limit of a job."""

from market.domain.network import BPS, HOUR_US
from market.jobs.models import Job


def highest_price(budget_wei: int, max_price_wei: int, units: int, unit_weight_us: int) -> int:
    """Return the highest price per GPU-hour in wei that limit and budget allow.

    A unit's price is rounded down to a multiple of 10,000 wei. It is payable until the exact price reaches the next
    multiple above the budget per unit.
    """
    per_unit = budget_wei // units
    limit = per_unit - per_unit % BPS + BPS
    return min(max_price_wei, (limit * HOUR_US - 1) // unit_weight_us)


def job_limit(job: Job) -> int:
    """Return the limit of a job's bid, in wei per GPU-hour."""
    return highest_price(job.escrowed_wei, job.price_cap_wei, job.units_ordered, job.unit_weight_us)
