"""Parts of the console's tables: addresses, hashes, amounts, badges."""

import pytest
from markupsafe import Markup

from market.console.parts import Parts
from market.console.rendering import amount, status_badge
from market.domain.network import ZEN

HOSTILE = "<script>alert(1)</script>\"'>&"
ADDRESS = "0x15d34AAf54267DB7D7c367839AAf71A00a2C6A65"


def unnamed(_address: str) -> None:
    return None


@pytest.mark.parametrize("name", [None, HOSTILE])
@pytest.mark.parametrize("value", [ADDRESS, HOSTILE])
def test_addresses_and_hashes_are_escaped(value: str, name: str | None) -> None:
    parts = Parts(lambda _: name, "https://explorer.example/<b>")
    for found in (parts.address(value, HOSTILE), parts.hash(value, HOSTILE, "tx"), parts.copy(value, HOSTILE)):
        assert isinstance(found, Markup)
        assert "<script" not in found
        assert "<b>/" not in found
        assert HOSTILE not in found
    assert "<script" not in status_badge(HOSTILE, HOSTILE)


def test_addresses_show_name_copy_button_and_explorer() -> None:
    found = Parts(lambda _: "you", "https://explorer.example/").address(ADDRESS, "/console/account")
    assert f'data-copy="{ADDRESS}"' in found
    assert "<b>you</b> <code" in found
    assert f'href="https://explorer.example/address/{ADDRESS}"' in found
    assert 'href="/console/account"' in found
    assert "explorer" not in Parts(unnamed, "https://explorer.example").address(ADDRESS, plain=True)
    assert Parts(unnamed, "").address(None) == Parts(unnamed, "").hash(None) == "–"


def test_amounts_show_exact_wei_in_title() -> None:
    assert (
        amount(ZEN + 1)
        == '<span class="amount" title="1.000000000000000001 ZEN = 1000000000000000001 wei">≈\u00a01 ZEN</span>'
    )
    assert amount(ZEN, unit=False).endswith(">1</span>")
    assert amount(None) == "–"
