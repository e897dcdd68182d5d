"""Fixtures of uploads."""

from kit.api.upload_fixtures import published_state, publishing_node  # noqa: F401  (fixtures)
