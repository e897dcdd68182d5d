"""Acts of staff in a browser: pause of intake, and the proposal of a grant."""

from kit.browser.accessibility import violations
from kit.browser.console import Console
from kit.chain.deployed_chain import OTHER
from playwright.sync_api import Page, expect
from sqlalchemy import update

from market.governance.chain_events import HANDLERS
from market.governance.models import TimelockOperation
from market.platform.db.base import utc_now


def index(console: Console) -> None:
    """Let the market read the chain's final events."""
    console.chain.anvil.mine(3)
    console.chain.index(console.services.database, {key: [handler] for key, handler in HANDLERS.items()})


def sign(page: Page, confirmation: str) -> None:
    """Confirm the prepared act, sign it, and wait until its block is there."""
    box = page.locator("#act")
    expect(box).to_contain_text("The simulation passes.", timeout=30_000)
    button = box.get_by_role("button", name="Sign in the wallet")
    expect(button).to_be_disabled()
    box.get_by_label(f"Type {confirmation} to confirm").fill(confirmation)
    button.click()
    expect(box.get_by_role("status")).to_contain_text("Mined", timeout=30_000)


def test_guardian_pauses_intake_once(console: Console) -> None:
    page = console.open()
    console.sign_in(page)
    page.goto("/console/guardian")
    page.get_by_role("button", name="Pause new jobs").click()
    sign(page, "escrow.pause")
    assert violations(page) == []
    page.get_by_role("button", name="Pause new jobs").click()
    expect(page.locator("#act")).to_contain_text("The simulation fails", timeout=30_000)


def test_grant_is_proposed_then_cancelled(console: Console) -> None:
    page = console.open()
    console.sign_in(page)
    page.goto("/console/guardian")
    page.get_by_label("Grant to").fill(OTHER.address)
    page.get_by_label("Amount, ZEN").fill("1.5")
    page.get_by_label("Purpose").fill("library")
    page.get_by_role("button", name="Propose grant").click()
    expect(page.locator("#act")).to_contain_text("Pay 1.5 ZEN", timeout=30_000)
    sign(page, "treasury.grant")
    index(console)
    page.goto("/console/guardian")
    page.get_by_role("button", name="Cancel operation").click()
    expect(page.locator("#act")).to_contain_text("Pay 1.5 ZEN", timeout=30_000)
    sign(page, "timelock.cancel")
    index(console)
    page.goto("/console/guardian")
    expect(page.get_by_text("cancelled", exact=True)).to_be_visible()


def test_fee_is_proposed_then_executed(console: Console) -> None:
    page = console.open()
    console.sign_in(page)
    page.goto("/console/guardian")
    page.get_by_label("Fee, basis points").fill("300")
    page.get_by_role("button", name="Propose fee").click()
    sign(page, "escrow.set-fee")
    index(console)
    page.goto("/console/guardian")
    assert page.get_by_role("button", name="Execute operation").count() == 0
    console.chain.anvil.rpc("evm_increaseTime", console.services.network.timelock_seconds)
    with console.services.database.transaction() as session:  # the page's clock is not the chain's
        session.execute(update(TimelockOperation).values(ready_at=utc_now()))
    index(console)
    page.goto("/console/guardian")
    page.get_by_role("button", name="Execute operation").click()
    sign(page, "timelock.execute")
    index(console)
    page.goto("/console/guardian")
    expect(page.get_by_text("executed", exact=True)).to_be_visible()


def test_malformed_argument_is_named(console: Console) -> None:
    page = console.open()
    console.sign_in(page)
    page.goto("/console/guardian")
    page.get_by_label("Release from jail").fill("nobody")
    page.get_by_role("button", name="Propose release").click()
    expect(page.locator("#act").get_by_role("alert")).to_contain_text("provider", timeout=30_000)
