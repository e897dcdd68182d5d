"""Benchmarks: ``python -m benchmarks.NAME [--json] [--quick]``, with the tests' kit."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # the engines and contracts that the tests run on
