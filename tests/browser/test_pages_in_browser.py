"""Every page of the console: accessible, in both themes, on small and wide screens."""

import pytest
from kit.browser.accessibility import overflow, violations
from kit.browser.console import Console

from market.console.page import Audience
from market.console.pages import PAGES

PATHS = [f"/console{page.path.rstrip('/')}" for page in PAGES if page.audience is not Audience.NODE]


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 360)])
def test_pages_are_accessible_and_fit(console: Console, theme: str, width: int) -> None:
    page = console.open(color_scheme=theme, viewport={"width": width, "height": 800})
    found = {}
    for path in ("/console/sign-in", "/console/nothing-here"):
        page.goto(path)
        found[path] = violations(page) + [f"{pixels} px too wide" for pixels in [overflow(page)] if pixels > 0]
    console.sign_in(page)
    for path in PATHS:
        answer = page.goto(path)
        assert answer is not None
        assert answer.status == 200, path
        found[path] = violations(page) + [f"{pixels} px too wide" for pixels in [overflow(page)] if pixels > 0]
    assert {path: problems for path, problems in found.items() if problems} == {}


def test_pages_work_by_keyboard(console: Console) -> None:
    page = console.open()
    page.goto("/console")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#main"
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")


def test_chart_is_drawn_and_readable_as_table(console: Console) -> None:
    page = console.open()
    page.goto("/console/design")
    page.wait_for_selector("[data-chart] canvas")
    page.get_by_text("As a table").click()
    assert page.locator(".chart details tbody tr").count() == 24
