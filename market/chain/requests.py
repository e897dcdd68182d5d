"""Contract calls that are queued again after a refusal, with a delay."""

from datetime import timedelta
from typing import Unpack

import structlog
from sqlalchemy.orm import Session

from market.chain.service import IntentFields, newest_attempt, queue_intent
from market.domain.lifecycle import IntentStatus
from market.platform.db.base import utc_now

RETRY_AFTER = timedelta(seconds=30)
_log = structlog.get_logger(__name__)


def should_retry(session: Session, *, key: str, subject: str) -> bool:
    """Return True if :func:`request_call` would queue such a call now."""
    made = newest_attempt(session, subject, key)
    return made is None or (made.status == IntentStatus.REVERTED and utc_now() >= made.updated_at + RETRY_AFTER)


def request_call(session: Session, **fields: Unpack[IntentFields]) -> None:
    """Queue the call unless it is queued, sent or successful. A refused call is queued again.

    ``key`` identifies the call; the key of each attempt is derived from it.
    """
    key, subject = fields["key"], fields["subject"]
    if not should_retry(session, key=key, subject=subject):
        return
    attempt = 0
    if (made := newest_attempt(session, subject, key)) is not None:
        _log.error("chain_call_retried", key=made.key, reason=made.reason, detail=made.detail)
        attempt = int(made.key.removeprefix(f"{key}:")) + 1
    fields["key"] = f"{key}:{attempt}"
    queue_intent(session, **fields)
