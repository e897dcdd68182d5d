"""Fixtures of verification."""

from kit.verification.verification_fixtures import (  # noqa: F401  (fixtures)
    delivered_units,
    several_verifiers,
    two_nodes,
    verification_world,
)
