"""Declared hardware of a node against published numbers. Pure.

Memory is in GB of 10**9 bytes on both sides. Devices and hosts report fewer GiB than the GB that they are sold with:
drivers, error correction and the kernel keep a part.
"""

from collections.abc import Mapping

from market.domain.network import BPS, Tier

MEMORY_TOLERANCE_BPS = 200
"""Share of a published amount of memory that may be missing."""


def has_memory(declared_gb: float, published_gb: float) -> bool:
    """Return whether a node has a published amount of memory, within the tolerance."""
    return declared_gb * BPS >= published_gb * (BPS - MEMORY_TOLERANCE_BPS)


def insufficient_key(hardware: Mapping[str, object], tier: Tier) -> str | None:
    """Return the first key of the declared hardware that is below the tier's number, or None.

    The number of GPUs is not compared: the required speed implies it.
    """
    declared = {key: float(str(hardware[key])) for key in ("gpu_memory_gb", "ram_gb", "network_gbps")}
    if not has_memory(declared["gpu_memory_gb"], tier.gpu_memory_gb):
        return "gpu_memory_gb"
    if not has_memory(declared["ram_gb"], tier.ram_gb):
        return "ram_gb"
    return None if declared["network_gbps"] >= tier.network_gbps else "network_gbps"
