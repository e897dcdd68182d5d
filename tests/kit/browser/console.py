"""The console of a test's market in a browser."""

from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, Page

from kit.browser.wallet import TestWallet
from kit.chain.deployed_chain import ADMIN, Chain
from market.platform.http.services import Services


@dataclass
class Console:
    """The console of the test's market; ``failures`` are errors of scripts and foreign requests."""

    url: str
    services: Services
    chain: Chain
    chrome: Browser
    failures: list[str] = field(default_factory=list)
    contexts: list[Any] = field(default_factory=list)

    def open(self, **options: Any) -> Page:
        """Return a page in a context of its own, without a session."""
        context = self.chrome.new_context(**{"base_url": self.url, "locale": "en-GB", **options})
        context.set_default_timeout(60_000)
        self.contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: self.failures.append(str(error)))
        page.on("console", lambda entry: self.failures.append(entry.text) if "Security Policy" in entry.text else None)
        page.on("request", self._note_foreign)
        return page

    def sign_in(self, page: Page, address: str = ADMIN.address) -> TestWallet:
        """Sign in by a wallet of the browser."""
        wallet = TestWallet(page, self.chain.anvil, address)
        page.goto("/console/sign-in")
        page.get_by_role("button", name="Test wallet").click()
        page.wait_for_url("**/console")
        return wallet

    def _note_foreign(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.failures.append(f"request of {request.url}")
