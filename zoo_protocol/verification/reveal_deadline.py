"""How long a provider has to show the states that its drawn segments start from (decision 13)."""

LEASES = 4
"""A provider has this many lease periods, and"""


BYTES_PER_SECOND = 500_000
"""the time that the files take at this rate (4 Mb/s)."""


def reveal_timeout_seconds(size: int, lease_seconds: float) -> float:
    """From the draw to the deadline, if nothing else of the provider's is to be shown; ``size`` in bytes."""
    return LEASES * lease_seconds + size / BYTES_PER_SECOND
