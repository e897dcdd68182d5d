"""Finding of a verification."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """Difference between an expected and a found value at ``where``; ``code`` is stable."""

    code: str
    where: str
    expected: str
    found: str
