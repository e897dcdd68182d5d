"""The devnet fixture."""

from kit.engines.devnet import devnet  # noqa: F401  (a fixture)
