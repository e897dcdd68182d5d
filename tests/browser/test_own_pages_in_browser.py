"""A user's and a node's own pages in a browser: signed orders and stakes, keys."""

import json
import re

import pytest
from kit.browser.accessibility import overflow, violations
from kit.browser.console import Console
from kit.chain.deployed_chain import PAYER
from kit.jobs.jobs_fixtures import SPEC, store_dataset
from kit.payments.settlement_fixtures import PROVIDERS, SettlementWorld
from kit.records import provider
from playwright.sync_api import Page, expect
from sqlalchemy import select

from market.accounts.organisations import service as organisations
from market.accounts.spending import Caps
from market.domain.lifecycle import JobStatus
from market.domain.network import ZEN
from market.jobs.models import Job
from market.platform.storage.client import Storage
from zoo_compute.chain.settlements import ChainReader

PATHS = ("/my/jobs", "/my/new-job", "/my/access", "/my/node")


@pytest.fixture
def market(console: Console, storage: Storage, ipfs: dict[str, str]) -> SettlementWorld:
    """The payer's market with its sender, indexer and settlement."""
    services = console.services
    return SettlementWorld(console.chain, services.database, storage, ipfs["gateway"], services.settings)


@pytest.fixture
def page(console: Console) -> Page:
    """A page of the payer, with a balance in the escrow."""
    console.chain.deposit(PAYER, 100 * ZEN)
    found = console.open()
    console.sign_in(found, PAYER.address)
    return found


@pytest.mark.parametrize(("theme", "width"), [("light", 360), ("dark", 1280)])
def test_own_pages_are_accessible_and_fit(console: Console, theme: str, width: int) -> None:
    page = console.open(color_scheme=theme, viewport={"width": width, "height": 800})
    console.sign_in(page, PAYER.address)
    with console.services.database.transaction() as session:
        session.add(provider(PAYER.address, name="<b>node</b>"))
        organisations.create(session, PAYER.address, "<b>Lab</b>", Caps(None, 5 * ZEN, None))
    found = {}
    for path in PATHS:
        answer = page.goto(f"/console{path}")
        assert answer is not None
        assert answer.status == 200, path
        for summary in page.locator("main > details > summary").all():
            summary.click()
        found[path] = violations(page) + [f"{pixels} px too wide" for pixels in [overflow(page)] if pixels > 0]
    assert {path: problems for path, problems in found.items() if problems} == {}


def test_job_is_quoted_signed_and_settled_with_receipt(
    console: Console, market: SettlementWorld, page: Page, storage: Storage
) -> None:
    page.goto("/console/my/new-job")
    page.get_by_label("Name").fill("shakespeare-1")
    page.get_by_label("Model, JSON").fill(json.dumps(SPEC["model_config"]))
    training = {**SPEC["training_config"], "inner_steps": 1000, "segment_steps": 100, "batch_size": 64}
    page.get_by_label("Training, JSON").fill(json.dumps(training))
    page.get_by_label("Dataset, CID of its manifest").fill(store_dataset(storage))
    page.get_by_label("Budget, ZEN").fill("1")
    page.keyboard.press("Tab")
    expect(page.get_by_role("heading", name="Quote")).to_be_visible(timeout=30_000)
    page.get_by_role("button", name="Sign and submit").click()
    expect(page.get_by_role("heading", name="shakespeare-1")).to_be_visible(timeout=30_000)
    expect(page.locator("[aria-current=step]")).to_have_text("submitted")
    [job] = market.all(select(Job))
    assert (job.payer, job.budget_wei) == (PAYER.address, ZEN)

    market.finalise()  # the operator opens the job on chain with the payer's signature
    assert market.read(job.id).escrowed_wei == ZEN
    market.change(Job, job.id, status=JobStatus.RUNNING, clearing_price_wei=2 * ZEN)
    market.work(job.id, 0, *PROVIDERS[: job.nodes])
    market.end(job.id)
    market.settled()
    page.reload()
    expect(page.locator("[aria-current=step]")).to_have_text("settled")
    reader = ChainReader(market.chain.anvil.url, market.chain.deployment.contracts)
    total = reader.settlement(job.id)
    assert total.paid > 0
    assert total.paid + total.fee + total.refund == ZEN
    for name, wei in {"Paid to providers": total.paid, "Fee": total.fee, "Refund": total.refund}.items():
        amount = page.locator("dt", has_text=re.compile(f"^{name}$")).locator("+ dd .amount")
        expect(amount).to_have_attribute("title", re.compile(f" = {wei} wei$"))
    settled_by = page.locator("dt", has_text="Settled by").locator("+ dd code")
    expect(settled_by).to_have_attribute("title", total.parts[-1].tx)
    expect(page.get_by_role("region", name="Settlement batches")).to_contain_text("the last")


def test_wrong_field_is_reported_next_to_form(page: Page) -> None:
    page.goto("/console/my/new-job")
    page.get_by_label("Dataset, CID of its manifest").fill("nonsense")
    page.keyboard.press("Enter")
    expect(page.locator("#quote .notice.bad")).to_contain_text("dataset", timeout=30_000)
    assert page.get_by_role("button", name="Sign and submit").count() == 0


def test_key_is_shown_once(page: Page) -> None:
    page.goto("/console/my/access")
    page.get_by_text("New key").click()
    page.get_by_label("Key name").fill("scripts")
    page.get_by_label("Cap per day, ZEN").fill("2.5")
    page.get_by_role("button", name="Create key").click()
    expect(page.get_by_text("shown once")).to_be_visible()
    page.goto("/console/my/access")
    expect(page.get_by_text("shown once")).to_have_count(0)
    page.get_by_role("button", name="Revoke key scripts").click()
    expect(page.get_by_text("No key yet")).to_be_visible()


def act(page: Page, label: str, amount: str, button: str) -> None:
    """Prepare an act, sign it, and wait until its block is there."""
    page.get_by_label(label, exact=True).fill(amount)
    page.get_by_role("button", name=button, exact=True).click()
    box = page.locator("#act")
    expect(box).to_contain_text("The simulation passes.", timeout=30_000)
    box.get_by_role("button", name="Sign in the wallet").click()
    expect(box.get_by_role("status")).to_contain_text("Mined", timeout=30_000)


def test_node_stakes_and_unbonds_by_its_wallet(console: Console, page: Page) -> None:
    with console.services.database.transaction() as session:
        session.add(provider(PAYER.address))
    page.goto("/console/my/node")
    page.get_by_label("Stake, ZEN", exact=True).fill("5")
    page.get_by_role("button", name="2. Stake").click()
    box = page.locator("#act")
    expect(box).to_contain_text("The simulation fails", timeout=30_000)
    expect(box.get_by_role("button", name="Sign in the wallet")).to_be_disabled()
    act(page, "Allow, ZEN", "5", "1. Allow")
    act(page, "Stake, ZEN", "5", "2. Stake")
    assert console.chain.views.stake_of(PAYER.address) == 5 * ZEN
    act(page, "Unbond, ZEN", "2", "Unbond")
    assert console.chain.views.stake_of(PAYER.address) == 3 * ZEN
