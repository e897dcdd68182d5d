"""Screenshots of every page in both themes, 360 and 1280 px wide, and for the README.

python -m benchmarks.console.screenshots FOLDER
"""

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from benchmarks.console.stage import stage
from benchmarks.report import progress
from market.console.visits import COOKIE
from tools.chromium import ARGUMENTS, chromium

JOBS, PROVIDERS = 1_000, 120
FORMS = [(theme, width) for theme in ("light", "dark") for width in (360, 1280)]
README = {"overview-light-1280": "overview", "jobs-one-dark-1280": "job", "disputes-one-light-1280": "dispute"}
_SETTLED_MS = 500
_MAX_HEIGHT = 3_000


def main(folder: Path) -> None:
    """Write one PNG per page and form."""
    folder.mkdir(parents=True, exist_ok=True)
    found = chromium()
    with stage(JOBS, PROVIDERS) as console, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found.executable, args=list(ARGUMENTS), env=dict(found.environment)
        )
        for theme, width in FORMS:
            context = browser.new_context(
                base_url=console.url,
                color_scheme=theme,  # type: ignore[arg-type]
                viewport={"width": width, "height": 800},
                locale="en-GB",
            )
            cookie = {"name": COOKIE, "value": console.admin.secret, "domain": "127.0.0.1", "path": "/console"}
            context.add_cookies([cookie])  # type: ignore[list-item]
            page = context.new_page()
            for page_name, path in console.pages.items():
                page.goto(f"/console{path}")
                page.wait_for_timeout(_SETTLED_MS)
                name = f"{page_name}-{theme}-{width}"
                height = min(_MAX_HEIGHT, page.evaluate("document.documentElement.scrollHeight"))
                target = folder / f"{name}.png"
                page.screenshot(path=target, full_page=True, clip={"x": 0, "y": 0, "width": width, "height": height})
                if name in README:
                    page.screenshot(path=folder / "readme" / f"{README[name]}.png")
                progress(str(target))
            context.close()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
