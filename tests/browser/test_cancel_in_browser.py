"""Cancellation of jobs from their pages in a browser, by the payer and by support."""

from collections.abc import Iterator

import pytest
from kit.browser.console import Console
from kit.chain.deployed_chain import OTHER, PAYER
from kit.jobs.jobs_fixtures import World
from kit.records import account
from playwright.sync_api import Page, expect
from sqlalchemy import update

from market.accounts.models import Account
from market.domain.lifecycle import JobStatus
from market.jobs.models import Job
from market.platform.storage.client import Storage
from market.settings import Settings


@pytest.fixture
def world(console: Console, database_url: str, storage: Storage, settings: Settings) -> Iterator[World]:
    """A market with accounts for both wallets; the second one is of support."""
    found = World(database_url, storage, settings)
    found.add(account(PAYER.address), Account(address=OTHER.address, roles=["admin"]))
    yield found
    found.database.dispose()


def job_of_payer(world: World, job_id: str) -> str:
    world.execute(update(Job).where(Job.id == job_id).values(payer=PAYER.address))
    return job_id


def cancel(page: Page, job_id: str) -> None:
    """Cancel the job; a wrong confirmation changes nothing."""
    page.goto(f"/console/jobs/{job_id}")
    page.get_by_label(f"Type {job_id[:10]} to confirm").fill("yes")
    page.get_by_role("button", name="Cancel this job").click()
    expect(page.get_by_text("Type the first ten characters")).to_be_visible()
    page.goto(f"/console/jobs/{job_id}")
    page.get_by_label(f"Type {job_id[:10]} to confirm").fill(job_id[:10])
    page.get_by_role("button", name="Cancel this job").click()
    expect(page.locator("[aria-current=step]")).to_have_text("cancelled")
    expect(page.get_by_role("button", name="Cancel this job")).to_have_count(0)
    expect(page.get_by_role("region", name="History").get_by_role("row").last).to_contain_text("you")


def test_payer_cancels_own_job(console: Console, world: World) -> None:
    job_id = job_of_payer(world, world.job())
    page = console.open()
    console.sign_in(page, PAYER.address)
    cancel(page, job_id)
    assert world.read(job_id).status == JobStatus.CANCELLED


def test_support_cancels_running_job_of_payer(console: Console, world: World) -> None:
    job_id = job_of_payer(world, world.running([world.node()]))
    page = console.open()
    console.sign_in(page, OTHER.address)
    cancel(page, job_id)
    row = world.read(job_id)
    assert row.status == JobStatus.CANCELLED
    assert [unit.status for unit in world.units(job_id)] == ["lost"]
