"""Time, first paint and weight of every page of the console, on a large market.

Server time is that of one request, without a network. The bare queries are the statements of the same request,
executed again by the driver alone. First paint and weight are those of Chromium with an empty cache.
"""

import time
from typing import Any

import psycopg
from playwright.sync_api import Browser, sync_playwright
from sqlalchemy import event

from benchmarks.console.stage import Stage, stage
from benchmarks.report import Row, progress, row, run
from market.console.visits import COOKIE
from tools.chromium import ARGUMENTS, chromium
from zoo_compute.devnet.engines import find_anvil

_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
_WEIGHT = """[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
  .reduce((sum, one) => sum + one.transferSize, 0)"""


def measure(quick: bool) -> list[Row]:
    """Return the rows of each page, and the worst of each kind."""
    jobs, providers, repetitions = (1_000, 100, 2) if quick else (100_000, 10_000, 7)
    with stage(jobs, providers) as console:
        times = {name: _server_time(console, path, repetitions) for name, path in console.pages.items()}
        paints = _paints(console, repetitions=1 if quick else 3)
    rows = []
    for page, (seconds, ratios) in times.items():
        name = page.replace("-", "_")
        rows.append(row(f"{name}_ms", "ms", [1_000 * one for one in seconds]))
        rows.append(row(f"{name}_to_queries", "ratio", ratios))
        rows.append(row(f"{name}_paint_ms", "ms", [paint for paint, _ in paints[page]]))
        rows.append(row(f"{name}_kb", "kB", [weight / 1_000 for _, weight in paints[page]]))
    for kind, unit in (("ms", "ms"), ("to_queries", "ratio"), ("paint_ms", "ms"), ("kb", "kB")):
        found = [one.value for one in rows if one.unit == unit and ("paint" in one.name) == ("paint" in kind)]
        rows.append(row(f"worst_{kind}", unit, [max(found)]))
    return rows


def _server_time(console: Stage, path: str, repetitions: int) -> tuple[list[float], list[float]]:
    """Return the seconds of requests, and their ratios to the bare queries of the same page."""
    progress(f"/console{path}")
    statements = _statements(console, path)
    seconds, ratios = [], []
    for _ in range(repetitions):
        bare = _bare(console, statements)
        started = time.perf_counter()
        console.admin.http.get(f"/console{path}").raise_for_status()
        seconds.append(time.perf_counter() - started)
        ratios.append(seconds[-1] / bare)
    return seconds, ratios


def _statements(console: Stage, path: str) -> list[tuple[str, Any]]:
    """Return the statements of a page's reads, with their values."""
    found: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, values: Any, *_: Any) -> None:
        if statement.lstrip().upper().startswith(("SELECT", "WITH")):
            found.append((statement, values))

    engine = console.services.database.engine
    event.listen(engine, "before_cursor_execute", note)
    console.admin.http.get(f"/console{path}").raise_for_status()
    event.remove(engine, "before_cursor_execute", note)
    return found


def _bare(console: Stage, statements: list[tuple[str, Any]]) -> float:
    url = console.services.settings.database_url.replace("postgresql+psycopg", "postgresql")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT 1")
        started = time.perf_counter()
        for statement, values in statements:
            connection.execute(statement, values).fetchall()
        return time.perf_counter() - started


def _paints(console: Stage, repetitions: int) -> dict[str, list[tuple[float, float]]]:
    """Return first paint in milliseconds and weight in bytes by page, with an empty cache."""
    found = chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found.executable, args=list(ARGUMENTS), env=dict(found.environment)
        )
        paints = {
            name: [_paint(browser, console, path) for _ in range(repetitions)] for name, path in console.pages.items()
        }
        browser.close()
    return paints


def _paint(browser: Browser, console: Stage, path: str) -> tuple[float, float]:
    context = browser.new_context(base_url=console.url, locale="en-GB")
    cookie = {"name": COOKIE, "value": console.admin.secret, "domain": "127.0.0.1", "path": "/console"}
    context.add_cookies([cookie])  # type: ignore[list-item]
    page = context.new_page()
    page.goto(f"/console{path}", wait_until="load")
    paint = page.evaluate(_PAINT)
    while paint is None:
        page.wait_for_timeout(20)
        paint = page.evaluate(_PAINT)
    weight = float(page.evaluate(_WEIGHT))
    context.close()
    return float(paint), weight


if __name__ == "__main__":
    run("console", measure, needs=find_anvil)
