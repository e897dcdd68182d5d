"""Settings of auctions whose rounds end only when a test ends them."""

import pytest

from market.settings import Settings


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """On a slow machine a round of five seconds would end by itself between two steps."""
    return settings.model_copy(update={"auction_interval_seconds": 600.0})
