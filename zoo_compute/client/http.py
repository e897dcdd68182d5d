"""Signed-in HTTP connection to the market, with safe retries and typed errors.

Only idempotent calls are retried: reads, and writes with an idempotency key, a content identifier or a lease token.
"""

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakSet

import httpx
import stamina

from zoo_compute.base.errors import ApiError, ConfigError, Unreachable
from zoo_compute.base.link import Link
from zoo_compute.chain.wallet import Wallet, siwe_message

_PROBLEM_KEYS = {"type", "title", "status", "detail", "code", "field", "remedy", "instance"}
_SIGN_IN = ("/v1/auth/nonce", "/v1/auth/siwe")
_NO_KEY = (
    "Set ZOO_PRIVATE_KEY or ZOO_KEYSTORE to sign in with a wallet, or ZOO_API_KEY to a valid key, or run: "
    "zoo-compute auth login"
)
_SILENCE_SECONDS = 30.0  # without any byte, before an attempt fails
_NO_MARKET = "Check the address: no market answers there, but a proxy or another service."
UNKNOWN_ANSWER = "Update zoo-compute, and check the address: another service may answer there."


class NoAnswer(Exception):
    """Connection failure, server error or rate limit; a retry may succeed."""


class NoMarket(NoAnswer):
    """A proxy or another service answered instead of the market."""


class Connection:
    """Requests to one market for one account. Safe for threads.

    Signs in on the first 401 and when a session has expired.

    Args:
        api_url: base URL, without ``/v1``.
        wallet: signs in.
        api_key: sent instead of a session.
        retry_seconds: time after the first failure in which a repeatable call is retried.
        link: measures and limits all traffic; None: neither.

    Raises:
        ConfigError: malformed URL or API key.
    """

    def __init__(
        self,
        api_url: str,
        *,
        wallet: Wallet | None = None,
        api_key: str | None = None,
        retry_seconds: float = 20.0,
        link: Link | None = None,
    ) -> None:
        self.api_url = _checked(api_url).rstrip("/")
        self.wallet = wallet
        self._token = None if api_key is None else _checked_key(api_key)
        self._may_sign_in = wallet is not None and api_key is None
        self._retry_seconds = retry_seconds
        self._sign_in_lock = threading.Lock()
        self._stopping = threading.Event()
        options: dict[str, Any] = {
            "base_url": self.api_url,
            "timeout": _SILENCE_SECONDS,
            "verify": httpx.create_ssl_context(),
        }
        hooks = link.hooks() if link else {}
        self._http, self._polls = (httpx.Client(**options, event_hooks=hooks) for _ in range(2))
        self._poll_sockets = WeakSet[socket.socket]()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()
        self._polls.close()

    def stop(self) -> None:
        """Retry nothing from now on, and end all polls: the process ends. Safe in a signal handler."""
        self._stopping.set()
        for connected in list(self._poll_sockets):
            with suppress(OSError):  # it is closed
                connected.shutdown(socket.SHUT_RDWR)

    def wait_or_stop(self, seconds: float) -> bool:
        """Wait, at most until :meth:`stop`. Return true after it."""
        return self._stopping.wait(seconds)

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON of a read. Raises as :meth:`call`."""
        return self.call("GET", path, repeatable=True, params=params)

    def post(self, path: str, body: Any = None, *, repeatable: bool = False) -> Any:
        """Return the JSON answer to a write. Raises as :meth:`call`."""
        return self.call("POST", path, repeatable=repeatable, json=body)

    def poll(self, path: str, body: Any, timeout: float) -> Any:
        """Return the JSON answer to a long poll, which :meth:`stop` ends. Raises as :meth:`call`."""
        extensions = {"trace": self._trace_poll}
        return self.call("POST", path, repeatable=False, json=body, timeout=timeout, extensions=extensions)

    def _trace_poll(self, event: str, info: Mapping[str, Any]) -> None:
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._poll_sockets.add(info["return_value"].get_extra_info("socket"))
            if self._stopping.is_set():
                self.stop()

    def pages(self, path: str, items: str, cursor: str, params: Mapping[str, Any] | None = None) -> Iterator[Any]:
        """Yield the ``items`` of all pages; ``cursor`` names the next one. Raises as :meth:`call`."""
        after = None
        while True:
            page = self.get(path, {**(params or {}), **({} if after is None else {"after": str(after)})})
            yield from page[items]
            after = page[cursor]
            if after is None:
                return

    def call(
        self, method: str, path: str, *, repeatable: bool, retry_seconds: float | None = None, **request: Any
    ) -> Any:
        """Return the JSON answer of one call, or None for an empty body.

        Args:
            path: from the root, such as ``/v1/jobs``.
            repeatable: the call is idempotent, so it is retried while there is no answer.
            retry_seconds: time limit for retries; None: the connection's.
            request: arguments of ``httpx.Client.request``.

        Raises:
            ApiError: the market refused it.
            Unreachable: no answer, or only server errors.
        """
        failures: list[float] = []

        def should_retry(error: Exception) -> bool:
            # From the first failure: sending one attempt may take longer than the limit.
            failures.append(time.monotonic())
            is_late = failures[-1] > failures[0] + (self._retry_seconds if retry_seconds is None else retry_seconds)
            return isinstance(error, NoAnswer) and not is_late and not self._stopping.is_set()

        def attempt() -> Any:
            with self.stream(method, path, **request) as response:
                response.read()
                return _json_of(response) if response.content else None

        attempts = None if repeatable else 1
        retried = stamina.RetryingCaller(attempts, timeout=None, wait_initial=0.1, wait_max=2.0, wait_jitter=0.2)
        try:
            return retried(should_retry, attempt)
        except NoMarket as error:
            raise Unreachable("no-market", f"{method} {self.api_url}{path}: {error}", remedy=_NO_MARKET) from error
        except (NoAnswer, httpx.RequestError) as error:
            raise Unreachable(
                "market-unreachable",
                f"{method} {self.api_url}{path}: {error}",
                remedy="Check the address and the market's GET /readyz.",
            ) from error

    @contextmanager
    def stream(self, method: str, path: str, **request: Any) -> Iterator[httpx.Response]:
        """Send one attempt. Yield its response; the caller reads the body.

        Raises:
            ApiError: the market refused it.
            NoAnswer: no answer, a server error, or a lost connection.
        """
        token = self._token
        with self._attempt(method, path, token, request) as response:
            if response.status_code != 401 or not self._may_sign_in or path in _SIGN_IN:
                wants_key = response.status_code == 401 and path not in _SIGN_IN
                _raise_for_problem(response, _NO_KEY if wants_key else None)
                yield response
                return
        self._sign_in(stale=token)
        with self._attempt(method, path, self._token, request) as response:
            _raise_for_problem(response)
            yield response

    @contextmanager
    def _attempt(self, method: str, path: str, token: str | None, request: dict[str, Any]) -> Iterator[httpx.Response]:
        headers = {**request.get("headers", {}), **({"Authorization": f"Bearer {token}"} if token else {})}
        try:
            http = self._polls if "trace" in request.get("extensions", {}) else self._http
            with http.stream(method, path, **{**request, "headers": headers}) as response:
                yield response
        except httpx.TransportError as error:
            raise NoAnswer(f"{type(error).__name__} {error}".strip()) from error
        except httpx.InvalidURL as error:
            raise ConfigError("address-malformed", f"{path!r:.200} is not a valid path: {error}") from error

    def _sign_in(self, *, stale: str | None) -> None:
        with self._sign_in_lock:
            if self._token != stale or self.wallet is None:  # another thread has signed in
                return
            with answer_errors("a sign-in"):
                challenge = self.post(_SIGN_IN[0], {"address": self.wallet.address})
                message = siwe_message(self.wallet.address, challenge)
                signed = {"message": message, "signature": self.wallet.sign_text(message)}
                self._token = str(self.post(_SIGN_IN[1], signed)["token"])


def _checked(api_url: str) -> str:
    try:
        url = httpx.URL(api_url)
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(
            "api-url-malformed",
            f"api_url is {api_url!r:.200}; expected an http:// or https:// URL",
            remedy="Give the base URL of a market.",
        )
    return api_url


def _json_of(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError as error:
        kind = response.headers.get("content-type", "unknown type")
        raise NoMarket(f"HTTP {response.status_code} with {kind} instead of JSON") from error


@contextmanager
def answer_errors(what: str) -> Iterator[None]:
    """Convert errors from reading the market's answer to ``what``.

    Raises:
        Unreachable: ``answer-unknown``: the answer is from another version of the market, or another service.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        cause = f"{type(error).__name__}: {error}".splitlines()[0]
        raise Unreachable(
            "answer-unknown",
            f"the answer to {what} has an unknown form: {cause:.300}",
            remedy=UNKNOWN_ANSWER,
        ) from error


def _raise_for_problem(response: httpx.Response, remedy: str | None = None) -> None:
    if response.is_success:
        return
    response.read()
    try:
        problem = response.json()
    except ValueError:
        problem = {}
    if not isinstance(problem, dict):
        problem = {}
    asked = f"{response.request.method} {response.request.url}"
    detail = str(problem.get("detail") or f"{asked} returned HTTP {response.status_code}")
    if response.status_code >= 500 or response.status_code == 429:
        raise NoAnswer(detail)
    if "code" not in problem:  # a market's refusal has one; a proxy's 404 during an outage does not
        raise NoMarket(detail)
    raise ApiError(
        response.status_code,
        str(problem["code"]),
        detail,
        field=problem.get("field"),
        remedy=remedy or problem.get("remedy"),
        extra={key: value for key, value in problem.items() if key not in _PROBLEM_KEYS},
    )


def _checked_key(api_key: str) -> str:
    key = api_key.strip()
    if key.isascii() and key.isprintable():
        return key
    remedy = "Check ZOO_API_KEY. Use the key exactly as `zoo-compute auth create-key` printed it."
    raise ConfigError("api-key-malformed", "the API key has characters other than printable ASCII", remedy=remedy)
