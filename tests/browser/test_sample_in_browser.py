"""Sample of a model in a browser."""

import pytest
from kit.browser.accessibility import overflow, violations
from kit.browser.console import Console
from kit.chain.deployed_chain import PAYER
from kit.jobs.jobs_fixtures import World
from playwright.sync_api import expect
from sqlalchemy import update

from market.jobs.models import Job
from market.platform.storage.client import Storage
from market.settings import Settings
from market.training.rounds import service as rounds
from worker.tasks import jobs as tasks


@pytest.fixture
def world(database_url: str, storage: Storage, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> World:
    found = World(database_url, storage, settings)
    monkeypatch.setattr(tasks, "context", lambda: found)
    return found


def test_sample_waits_then_shows_escaped_text(console: Console, world: World) -> None:
    job_id = world.job()
    assert rounds.build_initial_checkpoint(world.database, world.settings, world.storage, job_id) is None
    page = console.open(viewport={"width": 360, "height": 800})
    console.sign_in(page, PAYER.address)
    world.execute(update(Job).values(payer=PAYER.address))
    page.goto(f"/console/jobs/{job_id}")
    page.get_by_label("Prompt").fill("<script>alert(1)</script>")
    page.get_by_label("Tokens").fill("20")
    page.get_by_role("button", name="Sample", exact=True).click()
    part = page.locator("#sample")
    expect(part).to_contain_text("waits for a worker", timeout=30_000)
    assert page.url.endswith(f"/console/jobs/{job_id}"), "the page loads only this part"
    tasks.generate()
    expect(part).to_contain_text("20 tokens of the checkpoint after round 0", timeout=30_000)
    expect(part.locator("pre")).to_contain_text("<script>alert(1)</script>")
    assert violations(page) == []
    assert overflow(page) <= 0
