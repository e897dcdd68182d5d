"""The size of the tests: ``ZOO_TEST_PROFILE`` is ``quick`` or ``long``."""

import os

PROFILE = os.environ.get("ZOO_TEST_PROFILE", "quick")


def examples(quick: int, long: int) -> int:
    """Return the number of generated cases in this profile."""
    return {"quick": quick, "long": long}[PROFILE]
