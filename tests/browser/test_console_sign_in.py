"""Sign-in, roles and sessions of the console in a browser."""

from datetime import timedelta
from urllib.parse import quote

import pytest
from kit.browser.console import Console
from kit.chain.deployed_chain import ADMIN, OTHER
from playwright.sync_api import expect
from sqlalchemy import update

from market.console.sessions.models import ConsoleSession
from market.platform.db.base import utc_now

SCRIPT = "<script>window.stolen = 1</script><img src=x onerror='window.stolen = 1'>"

SEND_SIGN_IN = """async (body) => {
  const headers = { "Content-Type": "application/json", Accept: "application/json" };
  return (await fetch("/console/sign-in", { method: "POST", headers, body })).status;
}"""


def test_wallet_signs_in_and_out(console: Console) -> None:
    page = console.open()
    page.goto("/console/audit")
    assert page.url.endswith("/console/sign-in?next=/console/audit")
    wallet = console.sign_in(page)
    assert wallet.asked == ["eth_requestAccounts", "personal_sign"]
    banner = page.get_by_role("banner")
    expect(banner).to_contain_text("guardian")
    page.get_by_role("link", name="Audit log").click()
    expect(page.get_by_role("cell", name="console signed in")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(banner.get_by_role("link", name="Sign in")).to_be_visible()
    page.goto("/console/audit")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_declined_signature_is_reported(console: Console) -> None:
    page = console.open()
    wallet = console.sign_in(page)
    page.get_by_role("button", name="Sign out").click()
    wallet.refuses = True
    page.goto("/console/sign-in")
    page.get_by_role("button", name="Test wallet").click()
    expect(page.get_by_role("alert")).to_have_text("The person declined.")


def test_devnet_account_signs_in_with_one_click(console: Console) -> None:
    page = console.open()
    page.goto("/console/sign-in?next=/console/audit")
    page.get_by_role("button", name="admin, guardian").click()
    expect(page.get_by_role("heading", name="Audit log")).to_be_visible()


def test_wrong_role_sees_reason_and_no_entry(console: Console) -> None:
    page = console.open()
    console.sign_in(page, OTHER.address)
    assert page.get_by_role("link", name="Audit log").count() == 0
    page.goto("/console/audit")
    expect(page.get_by_role("heading", name="Your wallet lacks the role for this page")).to_be_visible()
    expect(page.get_by_text("it needs one of admin, guardian", exact=False)).to_be_visible()


def test_expired_session_leads_back_after_sign_in(console: Console) -> None:
    page = console.open()
    console.sign_in(page)
    with console.services.database.transaction() as session:
        session.execute(update(ConsoleSession).values(seen_at=utc_now() - timedelta(hours=2)))
    page.goto("/console/audit?audit.sort=time")
    expect(page.get_by_text("Your session has ended")).to_be_visible()
    page.get_by_role("button", name="Test wallet").click()
    expect(page.get_by_role("heading", name="Audit log")).to_be_visible()
    assert page.url.endswith("/console/audit?audit.sort=time")


def test_session_ends_from_another_browser(console: Console) -> None:
    first, second = console.open(), console.open()
    console.sign_in(first)
    console.sign_in(second)
    first.get_by_role("link", name="Sessions").click()
    row = first.get_by_role("row").filter(has_not_text="this one").last
    row.get_by_role("button").click()
    expect(first.get_by_role("button", name="End session")).to_have_count(1)
    second.goto("/console/account")
    expect(second.get_by_role("heading", name="Sign in")).to_be_visible()


@pytest.mark.parametrize(
    "path", ["/console/account", f"/console/audit?audit.q={quote(SCRIPT)}", f"/console/{quote(SCRIPT)}"]
)
def test_script_in_foreign_text_is_shown_as_text(console: Console, path: str) -> None:
    page = console.open(user_agent=SCRIPT)
    console.sign_in(page)
    page.goto(f"/console/{path}")
    assert page.evaluate("window.stolen") is None
    assert page.locator("main img").count() == 0


def test_form_of_another_site_changes_nothing(console: Console) -> None:
    page = console.open()
    console.sign_in(page)
    forged = f"<form method=post action={console.url}/console/account/end-all><button>Win</button></form>"
    page.route("http://evil.test/**", lambda route: route.fulfill(body=forged, content_type="text/html"))
    other = page.context.new_page()
    other.route("http://evil.test/**", lambda route: route.fulfill(body=forged, content_type="text/html"))
    other.goto("http://evil.test/")
    other.get_by_role("button").click()
    expect(other.get_by_text("console-request-forged")).to_be_visible()
    page.goto("/console/account")
    expect(page.get_by_role("heading", name="Sessions")).to_be_visible()


def test_replayed_signature_opens_no_session(console: Console) -> None:
    page, thief = console.open(), console.open()
    with page.expect_request(lambda sent: sent.method == "POST" and sent.url.endswith("/sign-in")) as signed:
        console.sign_in(page)
    thief.goto("/console/sign-in")
    assert thief.evaluate(SEND_SIGN_IN, signed.value.post_data) == 401
    thief.goto("/console/account")
    expect(thief.get_by_role("heading", name="Sign in")).to_be_visible()


def test_stale_page_says_since_when(console: Console) -> None:
    page = console.open()
    page.goto("/console")
    expect(page.get_by_role("status")).to_have_text("Live")
    page.context.set_offline(True)
    page.clock.install()
    page.clock.fast_forward(60_000)
    expect(page.get_by_role("status")).to_contain_text("Stale since")


def test_address_is_copied_and_time_is_local(console: Console) -> None:
    page = console.open(timezone_id="Asia/Tokyo", locale="en-GB", permissions=["clipboard-read", "clipboard-write"])
    console.sign_in(page)
    page.get_by_role("banner").get_by_role("button", name="Copy address").click()
    assert page.evaluate("navigator.clipboard.readText()") == ADMIN.address
    page.goto("/console/account")
    shown = page.locator("main time").first
    assert shown.get_attribute("title").endswith("UTC")
    assert shown.inner_text()[:2] != shown.get_attribute("title")[:2]
