"""Hosts of webhooks that are no names."""

import httpx
import pytest

from market.webhooks.sending import AddressRefused, checked_addresses


def test_a_host_that_is_no_punycode_is_refused_and_no_error_of_ours() -> None:
    with pytest.raises(AddressRefused, match="the host is not a valid name"):
        checked_addresses(httpx.URL("https://xn--/"), private=False)
