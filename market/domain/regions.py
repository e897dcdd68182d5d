"""Where a job may run."""

from collections.abc import Mapping


def allows_region(requirements: Mapping[str, object], region: str) -> bool:
    """Whether a job with these requirements accepts nodes of a region.

    ``regions``, where given and not empty, lists all that it accepts; ``excluded_regions`` those that it does not.
    """
    allowed, excluded = requirements.get("regions"), requirements.get("excluded_regions")
    return (not isinstance(allowed, list) or not allowed or region in allowed) and not (
        isinstance(excluded, list) and region in excluded
    )
