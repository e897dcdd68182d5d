"""What a check of a receipt found."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not agree. ``where`` names it, ``code`` is stable."""

    code: str
    where: str
    expected: str
    found: str
