"""Fixtures of verification."""

from kit.verification.verification_fixtures import delivered_units, several_verifiers, two_nodes, verification_world  # noqa: F401  (fixtures)
