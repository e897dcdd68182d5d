"""The public pages: the console's, and the API's documentation."""

import re

import httpx
from kit.api.clients import refusal

from market.console.router import zen
from market.domain.network import DEVNET


def test_network_page_shows_tiers_nodes_and_addresses(api: httpx.Client) -> None:
    page = api.get("/console")
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "<script" not in page.text
    assert "style=" not in page.text
    for tier in DEVNET.tiers:
        assert tier.gpu_model in page.text
    for address in api.get("/v1/network").json()["contracts"].values():
        assert address in page.text
    assert api.get("/console/console.css").headers["content-type"].startswith("text/css")


def test_treasury_page_reports_unreachable_chain(api: httpx.Client) -> None:
    refusal(api.get("/console/treasury"), 503, "chain-unavailable")


def test_amounts_are_shown_exactly() -> None:
    assert zen(0) == "0"
    assert zen(1) == "0.000000000000000001"
    assert zen(1_234_500 * 10**18) == "1,234,500"
    assert zen(25 * 10**17) == "2.5"
    assert zen(None) == "–"


def test_documentation_loads_no_external_resources(api: httpx.Client) -> None:
    page = api.get("/docs")
    assert page.status_code == 200
    assert "://" not in page.text
    assets = {path: api.get(path) for path in re.findall(r"""(?:src|href)=['"](.*?)['"]""", page.text)}
    kinds = {asset.headers["content-type"].split(";")[0] for asset in assets.values() if asset.status_code == 200}
    assert {"text/javascript", "text/css", "image/png"} == kinds
    script = next(asset.text for asset in assets.values() if "javascript" in asset.headers["content-type"])
    assert "SwaggerUIBundle" in script
    [document] = re.findall(r"url: '(.*?)'", page.text)
    assert api.get(document).json()["info"]["title"] == "Zoo Compute"
    refusal(api.get("/redoc"), 404, "not-found")
