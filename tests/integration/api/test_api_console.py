"""The console over HTTP: pages, sessions, forged requests, roles. The API's documentation."""

import hashlib
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from eth_account import Account
from fastapi import FastAPI
from kit.api.clients import refusal
from kit.api.console_clients import browser, signed_in, signed_message
from kit.chain.deployed_chain import ADMIN, OTHER
from kit.measures import statements
from kit.waiting import wait_until
from sqlalchemy import update

import market.console
from market.chain.contracts.codec import Deployment
from market.chain.errors import ChainError
from market.chain.views import ChainViews
from market.console import chain_facts
from market.console.pages import PAGES
from market.console.rendering import short_zen, zen
from market.console.sessions import service as sessions
from market.console.sessions.models import ConsoleSession
from market.console.sessions.roles import read_roles
from market.domain.network import DEVNET
from market.platform.db.base import utc_now
from market.platform.events.service import record
from market.platform.http.services import Services

STATIC = Path(market.console.__file__).parent / "static"
JSON = {"Accept": "application/json"}
VENDORED = {
    "htmx-2.0.11.min.js": "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",
    "uplot-1.6.32.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uplot-1.6.32.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}


def change(services: Services, **values: Any) -> None:
    with services.database.transaction() as session:
        session.execute(update(ConsoleSession).values(**values))


def test_network_page_shows_tiers_nodes_and_addresses(api: httpx.Client) -> None:
    page = api.get("/console")
    assert page.status_code == 200
    for tier in DEVNET.tiers:
        assert tier.gpu_model in page.text
    for address in api.get("/v1/network").json()["contracts"].values():
        assert address in page.text


def test_policy_allows_own_scripts_and_styles_only(api: httpx.Client) -> None:
    for path in ("/console", "/console/design", "/console/nothing-here"):
        page = api.get(path)
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert page.headers["cache-control"] == "no-store"
        assert not re.search(r"<script(?![^>]*src=\"/console/static/)", page.text)
        assert not re.search(r"\sstyle=|\son\w+=|(?:src|href)=\"(?:https?:)?//", page.text)
        for asset in re.findall(r"(?:src|href)=\"(/console/static/[^\"]+)\"", page.text):
            assert "immutable" in api.get(asset).headers["cache-control"]


@pytest.mark.parametrize("name", VENDORED)
def test_vendored_files_are_those_of_pinned_versions(name: str) -> None:
    assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == VENDORED[name]
    assert (STATIC / f"{name.partition('-')[0]}-LICENSE.txt").exists()


@pytest.mark.parametrize("path", ["", "/treasury", "/sign-in"])
def test_public_pages_do_not_wait_for_chain(api: httpx.Client, path: str) -> None:
    assert api.get(f"/console{path}").status_code == 200  # the chain of these tests is unreachable


def test_unknown_page_is_shown_as_page_or_problem(api: httpx.Client) -> None:
    page = api.get("/console/nothing-here")
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    refusal(api.get("/console/nothing-here", headers=JSON), 404, "not-found")


def test_signed_in_wallet_sees_and_ends_its_sessions(api: httpx.Client) -> None:
    first = signed_in(api)
    second = signed_in(api, first.wallet)
    numbers = re.findall(r"name=\"session_id\" value=\"(\d+)\"", first.http.get("/console/account").text)
    assert len(numbers) == 2
    assert first.submit("/account/end-session", session_id=max(numbers, key=int)).status_code == 303
    assert first.http.get("/console/account").status_code == 200
    assert second.http.get("/console/account").status_code == 303
    first.submit("/account/end-all")
    assert first.http.get("/console/account").headers["location"] == "/console/sign-in?next=/console/account"


def test_cookies_are_for_this_site_and_encrypted(api: httpx.Client) -> None:
    visitor = browser(api)
    answers = (
        visitor.sign_in(signed_message(visitor)),
        api.get("/console/disputes", params={"disputes.sort": "opened"}),
        api.get("/console/disputes", params={"disputes.reset": "1"}),
    )
    for answer in answers:
        cookie = answer.headers["set-cookie"].split("; ")
        assert {"HttpOnly", "SameSite=strict", "Secure", "Path=/console"} <= set(cookie)


def test_wallet_cannot_end_session_of_another(api: httpx.Client) -> None:
    victim, attacker = signed_in(api), signed_in(api)
    [number] = re.findall(r"name=\"session_id\" value=\"(\d+)\"", victim.http.get("/console/account").text)
    attacker.submit("/account/end-session", session_id=number)
    assert victim.http.get("/console/account").status_code == 200


@pytest.mark.parametrize("limit", ["expires_at", "seen_at"])
def test_expired_or_idle_session_must_sign_in(api: httpx.Client, services: Services, limit: str) -> None:
    wallet = signed_in(api)
    change(services, **{limit: utc_now() - timedelta(minutes=61)})
    assert wallet.http.get("/console/account").status_code == 303
    assert "Your session has ended" in wallet.http.get("/console/sign-in").text


def test_signature_is_accepted_once(api: httpx.Client) -> None:
    thief = browser(api)
    signed = signed_message(thief)
    assert thief.sign_in(signed).status_code == 200
    again = browser(api, thief.wallet)
    refusal(again.sign_in(signed), 401, "sign-in-refused")
    assert "zoo_console" not in again.http.cookies


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.test"}, {"Origin": "null"}])
def test_request_of_another_origin_is_refused(api: httpx.Client, headers: dict[str, str]) -> None:
    wallet = signed_in(api)
    token = sessions.csrf_token(wallet.secret)
    answer = wallet.http.post("/console/account/end-all", data={"csrf": token}, headers=headers | JSON)
    refusal(answer, 403, "console-request-forged")
    assert wallet.http.get("/console/account").status_code == 200


@pytest.mark.parametrize("token", ["", "0" * 64, "of another session"])
def test_form_without_token_of_session_is_refused(api: httpx.Client, token: str) -> None:
    wallet = signed_in(api)
    if token.startswith("of"):
        token = sessions.csrf_token(signed_in(api).secret)
    refusal(wallet.http.post("/console/sign-out", data={"csrf": token}, headers=JSON), 403, "console-request-forged")
    assert wallet.http.get("/console/account").status_code == 200


def test_next_page_after_sign_in_stays_in_console(api: httpx.Client) -> None:
    for path in ("//evil.test", "https://evil.test/console", "/console/../v1", "/console\\evil", "javascript:alert(1)"):
        page = api.get("/console/sign-in", params={"next": path}).text
        [target] = re.findall(r"data-next=\"([^\"]*)\"", page)
        assert target in ("/console", "/console/../v1")  # the browser stays at this origin
    assert 'data-next="/console/jobs?q=1"' in api.get("/console/sign-in?next=/console/jobs%3Fq%3D1").text


def test_roles_come_from_contracts_and_expire(api: httpx.Client, on_chain: Services) -> None:
    admin = signed_in(api, Account.from_key(ADMIN.key))
    visitor = sessions.visitor_of(on_chain, admin.secret)
    assert visitor is not None
    assert visitor.roles == {"admin", "guardian"}
    change(on_chain, roles_read_at=utc_now() - timedelta(minutes=11))
    visitor = sessions.visitor_of(on_chain, admin.secret)
    assert visitor is not None
    assert not visitor.roles  # nothing renewed them
    admin.http.get("/console")  # reads them again after its response
    wait_until(lambda: "guardian" in admin.http.get("/console").text)
    assert read_roles(on_chain.part(ChainViews), [OTHER.address]) == {OTHER.address: frozenset()}


def test_page_without_reads_takes_one_statement(api: httpx.Client, on_chain: Services) -> None:
    admin = signed_in(api, Account.from_key(ADMIN.key))
    with statements(on_chain.database) as seen:
        assert admin.http.get("/console/design").status_code == 200
    assert [statement.split()[0] for statement, _ in seen] == ["SELECT"]
    with statements(on_chain.database) as seen:
        assert admin.http.get("/console/sign-in").status_code == 200
    assert len(seen) == 2  # the session, and the kinds of the devnet's accounts


def test_sign_in_asks_failed_node_once(api: httpx.Client, on_chain: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class SilentNode:
        def ask(self, method: str) -> None:
            asked.append(method)
            raise ChainError("no answer")

    monkeypatch.setattr(chain_facts, "_node", lambda _services: SilentNode())
    for _ in range(3):
        assert "data-devnet" not in api.get("/console/sign-in").text
    assert asked == ["eth_accounts"]


def test_devnet_offers_accounts_and_relays_to_them(api: httpx.Client, on_chain: Services) -> None:
    page = api.get("/console/sign-in").text
    assert f'data-devnet="{ADMIN.address}"' in page
    assert page.index(ADMIN.address) < page.index(OTHER.address)
    visitor = browser(api)
    message = visitor.http.post("/console/sign-in/challenge", json={"address": ADMIN.address}).json()["message"]
    asked = {"method": "personal_sign", "params": ["0x" + message.encode().hex(), ADMIN.address]}
    signature = visitor.http.post("/console/devnet/rpc", json=asked).json()["result"]
    assert visitor.sign_in({"message": message, "signature": signature}).status_code == 200
    assert "guardian" in visitor.http.get("/console").text


def test_other_chains_refuse_devnet_accounts(api: httpx.Client, app: FastAPI, on_chain: Services) -> None:
    other = replace(on_chain.part(Deployment), chain_id=1)
    app.state.services = on_chain.with_part(Deployment, other)
    assert "data-devnet" not in api.get("/console/sign-in").text
    answer = browser(api).http.post("/console/devnet/rpc", json={"method": "eth_accounts"}, headers=JSON)
    refusal(answer, 403, "console-devnet-only")


def test_relay_passes_no_other_method(api: httpx.Client, on_chain: Services) -> None:
    answer = browser(api).http.post("/console/devnet/rpc", json={"method": "anvil_setBalance"}, headers=JSON)
    refusal(answer, 422, "invalid-request")


def test_audit_log_is_for_staff_and_searched(api: httpx.Client, on_chain: Services) -> None:
    other, admin = signed_in(api), signed_in(api, Account.from_key(ADMIN.key))
    refusal(other.http.get("/console/audit", headers=JSON), 403, "console-role-missing")
    refusal(api.get("/console/audit", headers=JSON), 401, "console-sign-in-needed")
    everything = admin.http.get("/console/audit").text
    assert other.wallet.address in everything
    found = admin.http.get("/console/audit", params={"audit.q": ADMIN.address, "audit.sort": "time"})
    assert other.wallet.address not in found.text
    assert 'aria-sort="ascending"' in found.text
    admin.http.cookies.set("table_audit", found.cookies["table_audit"], path="/console")  # kept without encryption
    remembered = admin.http.get("/console/audit").text  # without a query the last one holds
    assert f'value="{ADMIN.address}"' in remembered
    assert other.wallet.address in admin.http.get("/console/audit?audit.reset=1").text
    assert "Nothing matches" in admin.http.get("/console/audit", params={"audit.q": "x\0' OR 1=1"}).text


def test_long_tables_are_shown_by_pages(api: httpx.Client, on_chain: Services) -> None:
    admin = signed_in(api, Account.from_key(ADMIN.key))
    with on_chain.database.transaction() as session:
        for number in range(120):
            record(session, ("job", f"0x{number:064x}"), "tried", actor="market")
    pages = [admin.http.get(f"/console/audit?audit.q=tried&audit.page={page}").text for page in (1, 2, 3)]
    assert [page.count("<td>tried</td>") for page in pages] == [50, 50, 20]
    subjects = [re.findall(r'title="0x0{56}([0-9a-f]{8})"', page) for page in pages]
    assert [int(one, 16) for page in subjects for one in dict.fromkeys(page)] == list(range(119, -1, -1))
    assert [">Next</a>" in page for page in pages] == [True, True, False]
    assert admin.http.get("/console/audit?audit.page=-1&audit.sort=nonsense").status_code == 200


def test_all_pages_have_own_path_and_title() -> None:
    assert len({page.path for page in PAGES}) == len(PAGES) == len({page.title for page in PAGES})


def test_amounts_are_shown_exactly() -> None:
    assert zen(0) == "0"
    assert zen(1) == "0.000000000000000001"
    assert zen(1_234_500 * 10**18) == "1,234,500"
    assert zen(25 * 10**17) == "2.5"
    assert zen(-25 * 10**17) == "−2.5"
    assert zen(None) == "–"


def test_short_amounts_are_marked_as_rounded() -> None:
    assert short_zen(48_771_374_444_208_000) == "≈\u00a00.04877"
    assert short_zen(1_234_567_890_123_456_789_012) == "≈\u00a01,234.56"
    assert short_zen(602_740_990_000_000_000_000_000) == "≈\u00a0602,740"
    assert short_zen(5 * 10**17) == "0.5"
    assert short_zen(1) == "0.000000000000000001"
    assert short_zen(0) == "0"


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
