"""Fixtures of disputes before staked referees."""

from kit.disputes.dispute_fixtures import settings_of_disputes  # noqa: F401  (a fixture)
from kit.disputes.referee_fixtures import cheating_node, honest_node, honest_unit, two_verifiers, world_of_referees  # noqa: F401  (fixtures)
