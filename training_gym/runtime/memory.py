"""Main memory of this machine, or of the container that a process runs in. No torch."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")
_LIMITS = (
    ("memory.max", "memory.current", "memory.stat", ""),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_"),
)
"""Limit, use and statistics of the process's control group, versions 2 and 1, and the prefix of the latter."""
_CACHES = ("active_file", "inactive_file")
"""Statistics of cached files: they count as use, but the kernel drops them before a process lacks memory."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of this machine, within the limit of its control group."""

    total: int
    free: int


def measured(group: Path = _CGROUP) -> Memory:
    """Return this process's memory: that of the machine, or less in a container."""
    machine = psutil.virtual_memory()
    total, free = machine.total, machine.available
    for limit, use, statistics, prefix in _LIMITS:
        with suppress(OSError, ValueError):  # no such group, or "max"
            allowed, used = int((group / limit).read_text()), int((group / use).read_text())
            cached = _cached_bytes(group / statistics, prefix)
            total, free = min(total, allowed), min(free, max(0, allowed - used + cached))
    return Memory(total, free)


def _cached_bytes(statistics: Path, prefix: str) -> int:
    found = dict(line.split() for line in statistics.read_text().splitlines())
    return sum(int(found[prefix + name]) for name in _CACHES if prefix + name in found)
