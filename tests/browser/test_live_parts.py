"""Live parts of open pages: a change appears by itself, once, and is never missed."""

from typing import Any

import pytest
from kit.browser.console import Console
from kit.chain.deployed_chain import OTHER, PROVIDER
from kit.console.market_history import seed
from kit.waiting import wait_until
from playwright.sync_api import Locator, Page, Route, expect
from sqlalchemy import update

from market.chain.contracts.codec import ChainEvent
from market.console import live
from market.console.sessions.models import ConsoleSession
from market.platform.db.base import utc_now
from market.verification.disputes.chain_events import HANDLERS
from zoo_protocol.hashing import sha256, to_hex

COUNT_TICKS = """
  window.isAway = false;
  Object.defineProperty(Document.prototype, "hidden", { get: () => window.isAway });
  window.EventSource = class extends EventSource {
    constructor(url) {
      super(url);
      this.addEventListener("tick", ({ data }) => { document.body.dataset.change = JSON.parse(data).change; });
    }
  };
"""

WATCH_CHARTS = """
  new MutationObserver((_, observer) => {
    const charts = [...document.querySelectorAll("#live [data-chart]")];
    document.body.dataset.drawn = charts.length === 2 && charts.every((chart) => "drawn" in chart.dataset);
    observer.disconnect();
  }).observe(document.getElementById("live").parentNode, { childList: true });
"""


@pytest.fixture
def page(console: Console, monkeypatch: pytest.MonkeyPatch) -> Page:
    """A page of staff that ticks often and can be hidden."""
    monkeypatch.setattr(live, "TICK_SECONDS", 0.2)
    found = console.open()
    found.add_init_script(COUNT_TICKS)
    console.sign_in(found)
    return found


def hash32(text: str) -> str:
    return to_hex(sha256(text.encode()))


def dispute(console: Console, name: str, **arguments: Any) -> None:
    """Handle a final event of the dispute."""
    args = {"disputeId": hash32("dispute")} | arguments
    event = ChainEvent("Disputes", name, args, hash32(name), 0, hash32("block"), 1, 1)
    with console.services.database.transaction() as session:
        HANDLERS["Disputes", name](session, event)


def open_dispute(console: Console) -> None:
    parties = {"unitId": hash32("unit"), "provider": PROVIDER.address, "challenger": OTHER.address}
    dispute(console, "DisputeOpened", segments=4, **parties)


def end_dispute(console: Console) -> None:
    dispute(console, "DisputeEnded", outcome=5)


def lines(page: Page) -> Locator:
    return page.locator("#table-disputes tbody").get_by_role("rowheader")


def await_tick(console: Console, page: Page) -> None:
    """Wait until the page knows of the newest change."""
    expect(page.locator("body")).to_have_attribute("data-change", str(live.newest_change(console.services)[0]))


def test_dispute_is_followed_by_open_pages(console: Console, page: Page) -> None:
    page.goto("/console/overview")
    figure = page.locator(".figure", has_text="Open disputes")
    count = figure.locator(".value")
    expect(count).to_have_text("0")
    listed = page.context.new_page()
    listed.goto(str(figure.get_by_role("link").get_attribute("href")))
    assert listed.url.endswith("?disputes.status=open")
    expect(lines(listed)).to_have_count(0)
    open_dispute(console)
    expect(count).to_have_text("1")
    lines(listed).get_by_role("link").click()
    expect(listed.locator("#live > p .badge").first).to_have_text("trace")
    end_dispute(console)
    expect(listed.locator("#live > p .badge").first).to_have_text("provider lost")
    expect(count).to_have_text("0")


def test_change_before_first_tick_appears(console: Console, page: Page) -> None:
    held: list[Route] = []
    page.route("**/console/live", lambda route: held.append(route))
    page.goto("/console/disputes")
    wait_until(lambda: page.title() and held)
    open_dispute(console)
    held[0].continue_()
    expect(lines(page)).to_have_count(1)


@pytest.mark.parametrize(
    ("leave", "come_back"),
    [
        ("isAway = true", "isAway = false"),
        ("document.querySelector('#live [type=search]').focus()", "document.activeElement.blur()"),
    ],
    ids=["hidden", "in_form"],
)
def test_change_waits_until_person_looks(console: Console, page: Page, leave: str, come_back: str) -> None:
    page.goto("/console/disputes")
    await_tick(console, page)
    page.evaluate(leave)
    open_dispute(console)
    await_tick(console, page)
    assert lines(page).count() == 0
    page.evaluate(come_back)
    expect(lines(page)).to_have_count(1)


def test_change_waits_for_end_of_click(console: Console, page: Page) -> None:
    page.goto("/console/disputes")
    await_tick(console, page)
    page.locator("#live h2").first.hover()
    page.mouse.down()
    open_dispute(console)
    await_tick(console, page)
    assert lines(page).count() == 0
    page.mouse.up()
    expect(lines(page)).to_have_count(1)


def test_chart_of_loaded_part_is_drawn_at_once(console: Console, page: Page) -> None:
    job = seed(console.services.database.engine, utc_now(), jobs=40, providers=20, epochs=1, rounds=8).job_id
    page.goto(f"/console/jobs/{job}")
    await_tick(console, page)
    page.evaluate(WATCH_CHARTS)
    open_dispute(console)
    expect(page.locator("body")).to_have_attribute("data-drawn", "true")


def test_ended_session_leads_to_sign_in(console: Console, page: Page) -> None:
    page.goto("/console/overview")
    await_tick(console, page)
    with console.services.database.transaction() as session:
        session.execute(update(ConsoleSession).values(ended_at=utc_now()))
    open_dispute(console)
    expect(page.get_by_text("Your session has ended")).to_be_visible()
    assert page.url.endswith("/console/sign-in?next=/console/overview")


def test_failed_load_is_stale_until_next_load(console: Console, page: Page) -> None:
    page.goto("/console/disputes")
    await_tick(console, page)
    answer: dict[str, Any] = {"status": 503, "body": "down"}
    page.route("**/console/disputes", lambda route: route.fulfill(**answer) if answer else route.continue_())
    open_dispute(console)
    state = page.locator("#live-state")
    expect(state).to_contain_text("Stale since")
    answer.clear()
    expect(lines(page)).to_have_count(1)
    expect(state).to_have_text("Live")
