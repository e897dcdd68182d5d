"""The console in a browser, on the API with a real chain."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from fastapi import FastAPI
from kit.browser.console import Console
from kit.chain.deployed_chain import Chain
from playwright.sync_api import Browser, expect, sync_playwright

from market.platform.http.services import Services
from tools.chromium import ARGUMENTS, chromium

expect.set_options(timeout=30_000)  # a busy machine needs longer than the default


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    """One browser for the tests of a file.

    While it is open, Playwright's event loop runs in this thread, and ``asyncio.run`` in other files' tests would fail.
    """
    found = chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found.executable, args=list(ARGUMENTS), env=dict(found.environment)
        )
        yield browser
        browser.close()


@pytest.fixture
def console(
    on_chain: Services, app: FastAPI, server: tuple[FastAPI, str], chain: Chain, chrome: Browser
) -> Iterator[Console]:
    own = {"public_url": server[1], "domain": server[1].removeprefix("http://")}
    services = replace(on_chain, settings=on_chain.settings.model_copy(update=own))
    app.state.services = services
    found = Console(server[1], services, chain, chrome)
    yield found
    for context in found.contexts:
        context.close()
    assert found.failures == []
