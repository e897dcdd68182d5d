"""Circuit breaker of a server, so that its absence delays few calls."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

import structlog

_PAUSE_SECONDS = 5.0
_log = structlog.get_logger(__name__)


class Breaker:
    """State of one server in this process, for all clients and threads.

    After a failure calls are refused for a pause. Then one call goes through, and all others after its answer.

    Args:
        name: the server's, for the log event.
        failures: errors of a server that does not answer. Any other error is an answer.
        refusal: error of a refused call.
    """

    def __init__(self, name: str, failures: tuple[type[Exception], ...], refusal: type[Exception]) -> None:
        self._name, self._failures, self._refusal = name, failures, refusal
        self._lock = threading.Lock()
        self._retry_at: float | None = None  # None: the server answers

    @property
    def is_open(self) -> bool:
        """Return True if a call would be refused now."""
        return self._retry_at is not None and monotonic() < self._retry_at

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Make one call in this block. Raises ``refusal`` if the server failed shortly before."""
        with self._lock:
            if self.is_open:
                raise self._refusal(f"{self._name} did not answer an earlier call")
            if self._retry_at is not None:
                self._retry_at = monotonic() + _PAUSE_SECONDS  # others are refused while this call waits
        try:
            yield
        except self._failures as error:
            self._retry_at = monotonic() + _PAUSE_SECONDS
            _log.warning(f"{self._name}_unavailable", error=str(error))
            raise
        except Exception:  # also an answer
            self._retry_at = None
            raise
        self._retry_at = None
