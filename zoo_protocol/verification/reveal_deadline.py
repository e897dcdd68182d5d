"""Deadline for revealing the start states of sampled segments (decision 13)."""

LEASES = 4
"""Lease periods that a provider gets."""
BYTES_PER_SECOND = 500_000
"""Upload rate for the files (4 Mb/s), in addition to the lease periods."""


def reveal_timeout_seconds(size: int, lease_seconds: float) -> float:
    """Return the seconds from sampling to the deadline without other reveals."""
    return LEASES * lease_seconds + size / BYTES_PER_SECOND
