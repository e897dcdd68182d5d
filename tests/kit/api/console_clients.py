"""Browsers without a screen: wallets that sign in to the console."""

from dataclasses import dataclass

import httpx
from eth_account import Account
from eth_account.signers.local import LocalAccount

from kit.api.clients import sign_text
from market.console.sessions.service import csrf_token
from market.console.visits import COOKIE


@dataclass(frozen=True)
class Browser:
    """Client with a cookie of its own; it sends the origin, as browsers do."""

    wallet: LocalAccount
    http: httpx.Client

    @property
    def secret(self) -> str:
        return str(self.http.cookies[COOKIE])

    def sign_in(self, signed: dict[str, str]) -> httpx.Response:
        """Send a signed message; keep the cookie, although the market of tests is not encrypted."""
        answer = self.http.post("/console/sign-in", json=signed, headers={"Accept": "application/json"})
        secret = answer.cookies.get(COOKIE)
        self.http.cookies.clear()
        if secret is not None:
            self.http.cookies.set(COOKIE, secret, path="/console")
        return answer

    def submit(self, path: str, **fields: str) -> httpx.Response:
        """Send a form with the session's token."""
        return self.http.post(f"/console{path}", data={"csrf": csrf_token(self.secret), **fields})


def browser(api: httpx.Client, wallet: LocalAccount | None = None) -> Browser:
    """Return a browser of that server without a session."""
    origin = str(api.base_url).rstrip("/")
    http = httpx.Client(base_url=origin, timeout=api.timeout, headers={"Origin": origin})
    return Browser(wallet or Account.create(), http)


def signed_message(browser: Browser) -> dict[str, str]:
    """Return a new message with its signature, for one sign-in."""
    answer = browser.http.post("/console/sign-in/challenge", json={"address": browser.wallet.address})
    message = answer.json()["message"]
    return {"message": message, "signature": sign_text(browser.wallet, message)}


def signed_in(api: httpx.Client, wallet: LocalAccount | None = None) -> Browser:
    """Return a browser with a session."""
    found = browser(api, wallet)
    answer = found.sign_in(signed_message(found))
    assert answer.status_code == 200, answer.text
    return found
