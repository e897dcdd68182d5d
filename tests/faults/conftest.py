"""The devnet fixture."""

from support.devnet import devnet  # noqa: F401  (a fixture)
