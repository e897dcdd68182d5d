"""Pages of market, providers, jobs and disputes in a browser, on a market with a history."""

import pytest
from kit.browser.accessibility import overflow, violations
from kit.browser.console import Console
from kit.chain.deployed_chain import ADMIN, queue_payment
from kit.console.market_history import Seeded, seed
from kit.records import account, provider
from playwright.sync_api import expect
from sqlalchemy import text

from market.console.page import Audience
from market.console.pages import PAGES
from market.platform.db.base import utc_now
from market.webhooks.models import WebhookEndpoint

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
INJECTION = """'"><img src=x onerror=stolen=1>"""
WRITTEN_BY_USERS = {
    "audit_events": ("reason", "subject_id"),
    "benchmark_runs": ("reason",),
    "dispute_verdicts": ("reason",),
    "jobs": ("reason",),
    "leases": ("reason",),
    "providers": ("name", "site", "owner", "reason"),
    "tx_intents": ("reason", "detail"),
    "units": ("reason",),
}
DOCUMENTS_OF_USERS = {"audit_events": "data", "jobs": "request", "providers": "hardware"}


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
    queue_payment(console.services.database)
    with console.services.database.transaction() as session:
        session.add(account(ADMIN.address))
        session.flush()
        session.add(provider(ADMIN.address, name=INJECTION))
        session.add(WebhookEndpoint(owner=ADMIN.address, url=INJECTION, kinds=["status"], secret="s"))
        for table, columns in WRITTEN_BY_USERS.items():
            changes = ", ".join(f"{column} = CAST(:words AS text)" for column in columns)
            session.execute(text(f"UPDATE {table} SET {changes}"), {"words": INJECTION})
        for table, column in DOCUMENTS_OF_USERS.items():
            session.execute(
                text(f"UPDATE {table} SET {column} = jsonb_build_object('name', CAST(:words AS text))"),
                {"words": INJECTION},
            )
    page = console.open(user_agent=INJECTION)
    console.sign_in(page)
    page.goto("/console/my/access")
    forms = (
        ("New key", "Key name", "Create key"),
        ("New organisation", "Organisation name", "Create organisation"),
    )
    for summary, field, button in forms:
        page.get_by_text(summary, exact=True).click()
        page.get_by_label(field, exact=True).fill(INJECTION)
        page.get_by_role("button", name=button, exact=True).click()
        expect(page.locator("main")).to_contain_text(INJECTION)
    own = [one.path for one in PAGES if one.audience is not Audience.PUBLIC]
    shown = set()
    for path in (*(path.format(seeded) for path in PATHS), f"/providers/{ADMIN.address}", *own):
        page.goto(f"/console{path}")
        assert page.evaluate("window.stolen === undefined && document.querySelector('img') === null"), path
        if INJECTION in page.locator("main").inner_text():
            shown.add(path)
    assert shown > {"/my/node", "/my/access", "/account", "/audit", "/jobs", "/providers", "/transactions"}
