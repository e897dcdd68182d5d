"""Pages of market, providers, jobs and disputes in a browser, on a market with a history."""

import pytest
from kit.browser.accessibility import overflow, violations
from kit.browser.console import Console
from kit.console.market_history import Seeded, seed
from playwright.sync_api import expect
from sqlalchemy import text

from market.platform.db.base import utc_now

PATHS = (
    "/market",
    "/disputes",
    "/disputes/{0.dispute_id}",
    "/disputes/{0.open_dispute_id}",
    "/jobs",
    "/jobs/{0.job_id}",
    "/jobs/{0.waiting_job_id}",
    "/jobs/{0.settled_job_id}",
    "/providers",
    "/providers/{0.provider}",
)
INJECTION = "<script>window.stolen = 1</script><img src=x onerror='window.stolen = 1'>"[:64]


@pytest.fixture
def seeded(console: Console) -> Seeded:
    return seed(console.services.database.engine, utc_now(), jobs=40, providers=20, epochs=3, rounds=8)


@pytest.mark.parametrize(("theme", "width", "paths"), [("light", 1280, PATHS), ("dark", 360, PATHS[::3])])
def test_history_pages_are_accessible_and_fit(
    console: Console, seeded: Seeded, theme: str, width: int, paths: tuple[str, ...]
) -> None:
    page = console.open(color_scheme=theme, viewport={"width": width, "height": 800})
    console.sign_in(page)
    found = {}
    for path in (path.format(seeded) for path in paths):
        answer = page.goto(f"/console{path}")
        assert answer is not None
        assert answer.status == 200, path
        found[path] = violations(page) + [f"{pixels} px too wide" for pixels in [overflow(page)] if pixels > 0]
    assert {path: problems for path, problems in found.items() if problems} == {}


def test_job_is_found_and_read_by_keyboard(console: Console, seeded: Seeded) -> None:
    page = console.open()
    console.sign_in(page)
    page.goto("/console/jobs")
    page.get_by_role("searchbox", name="Name, id or payer").focus()
    page.keyboard.type(seeded.job_id[:12])
    page.keyboard.press("Enter")
    rows = page.locator("#table-jobs tbody tr")
    expect(rows).to_have_count(1)
    rows.get_by_role("link").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("[data-chart] canvas")).to_have_count(2)
    expect(page.locator("[data-chart] .u-label").first).to_have_text("Round")
    expect(page.locator("[aria-current=step]")).to_have_text("running")


def test_waiting_job_loads_its_reasons(console: Console, seeded: Seeded) -> None:
    page = console.open()
    console.sign_in(page)
    page.goto(f"/console/jobs/{seeded.waiting_job_id}")
    expect(page.locator("#why .notice").first).to_be_visible()


def test_scripts_of_users_do_not_run(console: Console, seeded: Seeded) -> None:
    with console.services.database.transaction() as session:
        for statement in (
            "UPDATE jobs SET request = jsonb_build_object('name', CAST(:words AS text)), reason = :words",
            "UPDATE providers SET name = :words, site = :words, owner = :words, reason = :words",
            "UPDATE units SET reason = :words",
        ):
            session.execute(text(statement), {"words": INJECTION})
    page = console.open()
    console.sign_in(page)
    for path in PATHS:
        page.goto(f"/console{path.format(seeded)}")
        assert page.evaluate("window.stolen === undefined && document.querySelector('main img') === null"), path
