"""Who was found to hold a bearer secret within the last second, so that a caller's next requests need not ask again."""

import time

from market.accounts.service import Principal
from zoo_protocol.hashing import sha256

_SECONDS = 1.0
_MOST = 10_000


class Callers:
    """Principals by secret (kept as a hash only), each for a second. For the coroutines of one event loop.

    Where a credential ends, or its rights change, by a request to this process, that request has :meth:`forget` called
    after its commit: from its answer on the old rights are gone. Other processes go by them for at most a second more.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[float, Principal]] = {}
        self._forgot_at = 0.0

    def find(self, secret: str) -> Principal | None:
        """Who held the secret when the database was last asked, if that was within a second."""
        known = self._known.get(sha256(secret.encode()))
        return known[1] if known is not None and time.monotonic() - known[0] < _SECONDS else None

    def remember(self, secret: str, principal: Principal, asked_at: float) -> None:
        """Note whom the database named; ``asked_at`` is the monotonic time before it was asked."""
        if asked_at <= self._forgot_at:  # what it said then may be over
            return
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[sha256(secret.encode())] = (asked_at, principal)

    def forget(self) -> None:
        """A credential ended, or its rights changed: ask for everybody anew."""
        self._known.clear()
        self._forgot_at = time.monotonic()
