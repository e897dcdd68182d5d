"""Acts of treasury, admin and guardian in a browser, signed by the wallet."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kit.browser import acts
from kit.browser.accessibility import overflow, violations
from kit.browser.acts import prepare
from kit.browser.console import Console
from kit.chain.anvil import AnvilProcess
from kit.chain.deployed_chain import ADMIN, OPERATOR, OTHER, PAYER, Chain, deploy_own
from kit.chain.settling import open_job, settlement
from playwright.sync_api import Page, expect

from market.chain.contracts.codec import Deployment
from market.domain.network import DEVNET, ZEN
from market.governance.chain_events import HANDLERS

NETWORK = replace(DEVNET, challenge_seconds=86_400)
FOLLOWED = "**/console/acts/transactions/*"
GRANT_WEI = 12_500_000_000_000_000_000


@pytest.fixture
def chain(anvil: AnvilProcess, deployment: Deployment, tmp_path: Path) -> Iterator[Chain]:
    """Contracts of this test with a long challenge period; the chain's clock is reverted."""
    mark = anvil.snapshot()
    yield deploy_own(anvil, tmp_path, NETWORK)
    anvil.revert(mark)


def index(console: Console) -> None:
    """Make all transactions final and store their events."""
    console.chain.anvil.mine(3)
    console.chain.index(console.services.database, {key: [handler] for key, handler in HANDLERS.items()})


def pass_delay(console: Console) -> None:
    console.chain.anvil.rpc("evm_increaseTime", NETWORK.timelock_seconds)
    index(console)


@pytest.fixture
def page(console: Console) -> Page:
    """A page of the account with all roles."""
    index(console)
    found = console.open()
    console.sign_in(found)
    return found


def sign(console: Console, page: Page, confirmation: str) -> None:
    """Sign the act of this page, and follow it until it is final."""
    acts.sign(page, confirmation, lambda: index(console))


def test_grant_is_proposed_and_executed(console: Console, page: Page) -> None:
    chain = console.chain
    chain.send(PAYER, "ZenToken", "transfer", chain.deployment.address("Treasury"), 100 * ZEN)
    page.goto("/console/treasury")
    page.get_by_role("link", name="Propose a grant").click()
    page.get_by_label("Recipient").fill(OTHER.address)
    page.get_by_label("Amount in ZEN").fill("12.5")
    page.get_by_label("Purpose").fill("Translations")
    sign(console, page, "treasury.grant")
    box = page.locator("#act")
    expect(box).to_contain_text(f"12.5 ZEN ({GRANT_WEI} wei)")
    expect(box).to_contain_text("needs PROPOSER_ROLE")
    expect(box).to_contain_text("It waits 2 days")
    page.goto("/console/governance")
    expect(page.get_by_role("region", name="Pending operations")).to_contain_text("Pay 12.5 ZEN")
    page.get_by_role("link", name="Execute operation").click()
    expect(prepare(page)).to_contain_text("The simulation fails: The operation is not due")
    pass_delay(console)
    before = chain.views.balance_of(OTHER.address)
    sign(console, page, "timelock.execute")
    assert chain.views.balance_of(OTHER.address) - before == GRANT_WEI
    page.goto("/console/treasury")
    expect(page.get_by_text("No grant or payment waits in the timelock.")).to_be_visible()
    expect(page.get_by_role("region", name="Payments", exact=True)).to_contain_text("12.5")
    page.goto("/console/acts")
    expect(page.get_by_role("region", name="Sent acts").get_by_role("row", name="treasury.grant")).to_have_count(2)
    page.goto("/console/guardian")
    expect(page.get_by_text("No role, pause, operation or payout is unexplained.")).to_be_visible()


def test_guardian_pauses_intake_and_ends_pause(console: Console, page: Page) -> None:
    page.goto("/console/guardian")
    page.get_by_role("link", name="Pause: New jobs and deposits").click()
    sign(console, page, "escrow.pause")
    page.goto("/console/guardian")
    page.get_by_role("link", name="End pause: New jobs and deposits").click()
    box = prepare(page)
    page.route(FOLLOWED, lambda route: route.abort())
    button = box.get_by_role("button", name="Sign in the wallet")
    button.click()
    expect(box.get_by_role("status")).to_contain_text("Its state is unknown now.")
    expect(button).to_be_disabled()  # a second signature would send the act twice
    page.unroute(FOLLOWED)
    expect(box.get_by_role("status")).to_contain_text("Mined")
    index(console)
    page.goto("/console/guardian")
    expect(page.get_by_role("link", name="Pause: New jobs and deposits")).to_be_visible()
    console.chain.deposit(PAYER, ZEN)


def test_foreign_batch_is_shown_and_vetoed(console: Console, page: Page) -> None:
    job = open_job(console.chain)
    _, function, arguments = settlement(job)
    console.chain.send(OPERATOR, "JobEscrow", function, *arguments)
    index(console)
    page.goto("/console/guardian")
    batch = page.locator("section[aria-labelledby=batch-1]")
    expect(batch).to_contain_text("The market has no record of a batch with this root.")
    expect(batch.get_by_role("link", name=job[:10])).to_be_visible()
    expect(page.get_by_role("region", name="Alarms")).to_contain_text("Batch 1 pays")
    batch.get_by_role("link", name="Veto batch 1").click()
    sign(console, page, "escrow.veto")
    page.goto("/console/guardian")
    expect(page.locator("section[aria-labelledby=batch-1]")).to_contain_text("Vetoed by")


def test_alarm_is_acknowledged(console: Console, page: Page) -> None:
    console.chain.send(ADMIN, "JobEscrow", "pause")
    index(console)
    page.goto("/console/guardian")
    expect(page.get_by_role("region", name="Alarms")).to_contain_text("paused the intake of JobEscrow")
    page.get_by_role("button", name="Acknowledge alarm").click()
    expect(page.get_by_text("No role, pause, operation or payout is unexplained.")).to_be_visible()


def test_wrong_role_and_account_are_refused(console: Console) -> None:
    index(console)
    page = console.open()
    wallet = console.sign_in(page, OTHER.address)
    page.goto("/console/acts/escrow.pause")
    expect(page.get_by_text("which your wallet lacks")).to_be_visible()
    box = prepare(page)
    expect(box).to_contain_text("lacks the role PAUSER_ROLE")
    box.get_by_label("Type escrow.pause to confirm").fill("escrow.pause")
    expect(box.get_by_role("button", name="Sign in the wallet")).to_be_disabled()
    page.goto(f"/console/acts/token.approve?spender={PAYER.address}&value=1")
    box = prepare(page)
    wallet.address = ADMIN.address
    box.get_by_role("button", name="Sign in the wallet").click()
    expect(box.get_by_role("alert")).to_contain_text(f"this act was prepared for {OTHER.address}")


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), pytest.param("dark", 360, marks=pytest.mark.long)])
def test_pages_of_acts_are_accessible_and_fit(console: Console, theme: str, width: int) -> None:
    job = open_job(console.chain)
    _, function, arguments = settlement(job)
    console.chain.send(OPERATOR, "JobEscrow", function, *arguments)
    index(console)
    page = console.open(color_scheme=theme, viewport={"width": width, "height": 800})
    console.sign_in(page)
    paths = ("guardian", "governance", "acts", "acts/batches/1/veto", "acts/staking.set-penalty?offence=downtime")
    found = {}
    for path in paths:
        answer = page.goto(f"/console/{path}")
        assert answer is not None
        assert answer.status == 200, path
        if "penalty" in path:
            page.get_by_label("Penalty in basis points").fill("100")
            page.get_by_label("Dispute's share in basis points").fill("100")
            prepare(page)
        found[path] = violations(page) + [f"{pixels} px too wide" for pixels in [overflow(page)] if pixels > 0]
    assert {path: problems for path, problems in found.items() if problems} == {}


def test_parameter_is_changed_by_timelock(console: Console, page: Page) -> None:
    page.goto("/console/governance")
    row = page.get_by_role("region", name="Parameters").get_by_role("row").filter(has_text="Fee").first
    row.get_by_role("link", name="Change: Fee").click()
    page.get_by_label("Fee in basis points").fill("400")
    sign(console, page, "escrow.set-fee")
    page.goto("/console/governance")
    expect(row).to_contain_text("Set the fee of new jobs to 4 % (400 bps)")
    pass_delay(console)
    page.get_by_role("link", name="Execute operation").click()
    sign(console, page, "timelock.execute")
    page.goto("/console/governance")
    expect(row).to_contain_text("4 %")
