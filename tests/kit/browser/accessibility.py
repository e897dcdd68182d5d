"""Checks of a page in the browser: axe's rules, and the width of a small screen."""

from functools import cache

from playwright.sync_api import Page

from tools.chromium import AXE

_RUN = """async () => {
  const runOnly = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
  const found = await axe.run(document, { runOnly });
  return found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html.slice(0, 160)).join(" | ")}`);
}"""


@cache
def _axe() -> str:
    return AXE.read_text()


def violations(page: Page) -> list[str]:
    """Return axe's violations of WCAG 2.2 AA and its best practices."""
    page.evaluate(_axe())  # by the debugger, because the page's policy forbids foreign scripts
    found: list[str] = page.evaluate(_RUN)
    return found


def overflow(page: Page) -> int:
    """Return the pixels by which the page is wider than the screen."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
