"""Cache of recent checks of storage, valid for a minute: a CID's content never changes."""

import threading
import time
from collections.abc import Hashable
from weakref import WeakKeyDictionary

from market.platform.storage.client import Storage

_SECONDS = 60.0
_MAX_CIDS = 10_000
_lock = threading.Lock()
_seen: WeakKeyDictionary[Storage, dict[Hashable, float]] = WeakKeyDictionary()


def was_recently_verified(storage: Storage, what: Hashable) -> bool:
    """Return True if ``what`` was recorded for this storage within the last minute."""
    with _lock:
        at = _seen.get(storage, {}).get(what)
    return at is not None and time.monotonic() - at < _SECONDS


def record_verified(storage: Storage, what: Hashable) -> None:
    """Record for a minute that storage has ``what``."""
    with _lock:
        known = _seen.setdefault(storage, {})
        if len(known) >= _MAX_CIDS:
            known.clear()
        known[what] = time.monotonic()
