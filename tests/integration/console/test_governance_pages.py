"""Pages of acts, the guardian and governance over HTTP: roles, filled fields, refusals."""

import httpx
import pytest
from eth_account import Account as Wallets
from kit.api.console_clients import Browser, signed_in
from kit.chain.deployed_chain import ADMIN, OPERATOR, PAYER, Chain

from market.console.sessions.service import csrf_token
from market.governance.chain_events import HANDLERS
from market.platform.http.services import Services

HASH = "0x" + "ab" * 32


@pytest.fixture
def paused(chain: Chain, on_chain: Services) -> Services:
    """Intake that the admin paused outside of the console, final."""
    chain.send(ADMIN, "JobEscrow", "pause")
    chain.anvil.mine(3)
    chain.index(on_chain.database, {key: [handler] for key, handler in HANDLERS.items()})
    return on_chain


def of(api: httpx.Client, key: str) -> Browser:
    return signed_in(api, Wallets.from_key(key))


def prepare(browser: Browser, path: str, **arguments: str) -> httpx.Response:
    headers = {"X-CSRF-Token": csrf_token(browser.secret), "Accept": "application/json"}
    return browser.http.post(f"/console/acts/{path}/prepare", json={"arguments": arguments}, headers=headers)


def test_acknowledgement_needs_role_and_is_logged(api: httpx.Client, paused: Services) -> None:
    operator, guardian = of(api, OPERATOR.key), of(api, ADMIN.key)
    page = operator.http.get("/console/guardian").text
    assert "paused the intake of JobEscrow" in page
    assert "Acknowledge alarm" not in page
    assert operator.submit("/guardian/acknowledge", event_id="1").status_code == 403
    page = guardian.http.get("/console/guardian").text
    event_id = page.partition('name="event_id" value="')[2].partition('"')[0]
    assert guardian.submit("/guardian/acknowledge", event_id=event_id).status_code == 303
    assert "Acknowledge alarm" not in guardian.http.get("/console/guardian").text
    assert "acknowledge" in guardian.http.get("/console/audit?audit.kind=governance").text


def test_pause_shows_its_end(api: httpx.Client, paused: Services, chain: Chain) -> None:
    guardian = of(api, ADMIN.key)
    assert "/console/acts/escrow.unpause" in guardian.http.get("/console/guardian").text
    chain.send(ADMIN, "JobEscrow", "unpause")
    chain.anvil.mine(3)
    chain.index(paused.database, {key: [handler] for key, handler in HANDLERS.items()})
    assert "/console/acts/escrow.pause" in guardian.http.get("/console/guardian").text


def test_form_is_filled_and_names_missing_role(api: httpx.Client, paused: Services) -> None:
    user = of(api, PAYER.key)
    page = user.http.get("/console/acts/jobescrow.revoke-role?role=GUARDIAN_ROLE&account=%3Cb%3E").text
    assert "<option selected>GUARDIAN_ROLE</option>" in page
    assert "DEFAULT_ADMIN_ROLE" not in page
    assert 'value="&lt;b&gt;"' in page
    assert "<code>PROPOSER_ROLE</code> of Timelock, which your wallet lacks" in page
    assert "your wallet has it" in of(api, ADMIN.key).http.get("/console/acts/escrow.pause").text


@pytest.mark.parametrize(
    "path", ["nothing.known", f"operations/{HASH}/execute", "batches/7/veto", f"operations/{HASH}/propose"]
)
def test_unknown_act_operation_and_batch_are_refused(api: httpx.Client, paused: Services, path: str) -> None:
    guardian = of(api, ADMIN.key)
    assert guardian.http.get(f"/console/acts/{path}").status_code in (404, 422)
    assert prepare(guardian, path).status_code in (404, 422)


def test_preparation_without_token_is_refused(api: httpx.Client, paused: Services) -> None:
    guardian = of(api, ADMIN.key)
    assert prepare(guardian, "escrow.unpause").json()["simulation"]["passes"] is True
    answer = guardian.http.post("/console/acts/escrow.unpause/prepare", json={"arguments": {}})
    assert (answer.status_code, "console-request-forged" in answer.text) == (403, True)
