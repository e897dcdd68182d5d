"""Simulated end of a process."""


class Killed(Exception):
    """Raised where a process ends."""
