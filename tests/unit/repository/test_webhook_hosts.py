"""Malformed host names of webhooks."""

import httpx
import pytest

from market.webhooks.http_delivery import AddressRefused, checked_addresses


def test_invalid_punycode_host_is_refused() -> None:
    with pytest.raises(AddressRefused, match="the host is not a valid name"):
        checked_addresses(httpx.URL("https://xn--/"), private=False)
