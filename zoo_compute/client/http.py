"""One signed-in HTTP connection to the market: sign-in, retries that are safe, errors with a code.

A call is repeated only when repeating it cannot do anything twice: reads, and writes that the market recognises by
an idempotency key, a content identifier or a lease token.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
import stamina

from zoo_compute.base.errors import ApiError, ConfigError, Unreachable
from zoo_compute.base.link import Link
from zoo_compute.chain.wallet import Wallet, siwe_message

_PROBLEM_KEYS = {"type", "title", "status", "detail", "code", "field", "remedy", "instance"}
_SIGN_IN = ("/v1/auth/nonce", "/v1/auth/siwe")
_NO_KEY = (
    "Set ZOO_PRIVATE_KEY or ZOO_KEYSTORE to sign in with a wallet, or ZOO_API_KEY to a key that is valid, or run: "
    "zoo-compute auth login"
)
_NO_MARKET = "Check the address: what answers there is no market, or stands before one."


class NoAnswer(Exception):
    """The market could not be reached, or could not answer now; the same request may succeed later."""


class NoMarket(NoAnswer):
    """Something else answered in its place: a proxy while the market is away, or whatever the address names."""


class Connection:
    """Requests to one market for one account. Safe for threads.

    It signs in when the market asks for it, and again when a session has ended.

    Args:
        api_url: base URL, without ``/v1``.
        wallet: signs in.
        api_key: sent instead of a session.
        patience: seconds after its first failure for which a repeatable call is retried while there is no answer.
        timeout: seconds without any byte before one attempt counts as failed.
        link: what all traffic goes over; None neither measures nor limits it.

    Raises:
        ConfigError: if the URL is none, or the API key cannot be one.
    """

    def __init__(
        self,
        api_url: str,
        *,
        wallet: Wallet | None = None,
        api_key: str | None = None,
        patience: float = 20.0,
        timeout: float = 30.0,
        link: Link | None = None,
    ) -> None:
        self.api_url = _checked(api_url).rstrip("/")
        self.wallet = wallet
        self._token = None if api_key is None else _checked_key(api_key)
        self._may_sign_in = wallet is not None and api_key is None
        self._patience = patience
        self._signing_in = threading.Lock()
        self._hurry = threading.Event()
        hooks = link.hooks() if link else {}
        self._http = httpx.Client(base_url=self.api_url, timeout=timeout, event_hooks=hooks)

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def hurry(self) -> None:
        """From now on repeat nothing: this process is about to end. May be called from a signal handler."""
        self._hurry.set()

    def hurries_within(self, seconds: float) -> bool:
        """Wait for so long; whether this process is about to end, which ends the waiting."""
        return self._hurry.wait(seconds)

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """The JSON of a read. Raises as :meth:`call`."""
        return self.call("GET", path, repeatable=True, params=params)

    def post(self, path: str, body: Any = None, *, repeatable: bool = False) -> Any:
        """The JSON answer to a write with a JSON body. Raises as :meth:`call`."""
        return self.call("POST", path, repeatable=repeatable, json=body)

    def call(self, method: str, path: str, *, repeatable: bool, patience: float | None = None, **request: Any) -> Any:
        """One call; returns its JSON, or None where the answer has no body.

        Args:
            path: from the root, such as ``/v1/jobs``.
            repeatable: sending it twice does no more than once, so it is retried while there is no answer.
            patience: seconds for which it is; None: the connection's.
            request: as ``httpx.Client.request`` takes it (``json``, ``content``, ``params``, ``headers``, ``timeout``).

        Raises:
            ApiError: the market refused it.
            Unreachable: no answer, or only server errors.
        """
        failures: list[float] = []

        def worth_repeating(error: Exception) -> bool:
            """Time is counted from the first failure: an attempt may take longer to send than all patience."""
            failures.append(time.monotonic())
            is_late = failures[-1] > failures[0] + (self._patience if patience is None else patience)
            return isinstance(error, NoAnswer) and not is_late and not self._hurry.is_set()

        try:
            for attempt in stamina.retry_context(
                on=worth_repeating,
                attempts=None if repeatable else 1,
                timeout=None,
                wait_initial=0.1,
                wait_max=2.0,
                wait_jitter=0.2,
            ):
                with attempt, self.stream(method, path, **request) as response:
                    response.read()
                    return _json_of(response) if response.content else None
        except NoMarket as error:
            raise Unreachable("no-market", f"{method} {self.api_url}{path}: {error}", remedy=_NO_MARKET) from error
        except (NoAnswer, httpx.RequestError) as error:
            raise Unreachable(
                "market-unreachable",
                f"{method} {self.api_url}{path}: {error}",
                remedy="Check the address and whether the market is up; GET /readyz says what is missing.",
            ) from error
        raise AssertionError("the last attempt returns or raises")

    @contextmanager
    def stream(self, method: str, path: str, **request: Any) -> Iterator[httpx.Response]:
        """One attempt; the answer's body is left to be read.

        Raises:
            ApiError: the market refused it.
            NoAnswer: no answer, a server error, or a connection lost while the body was read.
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
            with self._http.stream(method, path, **{**request, "headers": headers}) as response:
                yield response
        except httpx.TransportError as error:
            raise NoAnswer(f"{type(error).__name__} {error}".strip()) from error
        except httpx.InvalidURL as error:
            raise ConfigError("address-malformed", f"{path!r:.200} is no address at a market: {error}") from error

    def _sign_in(self, *, stale: str | None) -> None:
        """A new session, unless another thread has just made one."""
        with self._signing_in:
            if self._token != stale or self.wallet is None:
                return
            with understood("a sign-in"):
                challenge = self.post(_SIGN_IN[0], {"address": self.wallet.address})
                message = siwe_message(self.wallet.address, challenge)
                signed = {"message": message, "signature": self.wallet.sign_text(message)}
                self._token = str(self.post(_SIGN_IN[1], signed)["token"])


def _checked(api_url: str) -> str:
    """The URL itself. Raises ConfigError if it names no host to be asked over HTTP."""
    try:
        url = httpx.URL(api_url)
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(
            "api-url-malformed",
            f"{api_url!r:.200} is no http:// or https:// URL",
            remedy="Give the base URL of a market.",
        )
    return api_url


def _json_of(response: httpx.Response) -> Any:
    """The document in an answer. What is none is not the market's: something on the way to it answered instead."""
    try:
        return response.json()
    except ValueError as error:
        kind = response.headers.get("content-type", "unknown type")
        raise NoMarket(f"HTTP {response.status_code} with no JSON in it, but {kind}") from error


def _asked(response: httpx.Response) -> str:
    return f"{response.request.method} {response.request.url}"


@contextmanager
def understood(what: str) -> Iterator[None]:
    """For reading the market's answers to ``what``: one of a form that this version does not know is none.

    Raises:
        Unreachable: ``answer-unknown``: another version of the market, or something in its place, gave it.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        told = f"{type(error).__name__}: {error}".splitlines()[0]
        raise Unreachable(
            "answer-unknown",
            f"the answer to {what} is none that this version understands: {told:.300}",
            remedy="Update zoo-compute, and check the address: it may be no market's.",
        ) from error


def _raise_for_problem(response: httpx.Response, remedy: str | None = None) -> None:
    """Raise what the market refuses with; ``remedy`` takes the place of its own."""
    if response.is_success:
        return
    response.read()
    try:
        problem = response.json()
    except ValueError:
        problem = {}
    if not isinstance(problem, dict):
        problem = {}
    detail = str(problem.get("detail") or f"{_asked(response)} is answered with HTTP {response.status_code}")
    if response.status_code >= 500 or response.status_code == 429:
        raise NoAnswer(detail)
    if "code" not in problem:  # which every refusal of a market has: many a proxy says 404 while there is none behind
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
    remedy = "Give it as `zoo-compute auth create-key` showed it; check ZOO_API_KEY."
    raise ConfigError("api-key-malformed", "the API key has characters that no key has", remedy=remedy)
