"""Contract calls that are queued again after a refusal, with a delay."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import structlog
from sqlalchemy.orm import Session

from market.chain.models import OPERATOR
from market.chain.service import newest_attempt, queue_intent
from market.domain.lifecycle import IntentStatus
from market.platform.db.base import utc_now

RETRY_AFTER = timedelta(seconds=30)
_log = structlog.get_logger(__name__)


def should_retry(session: Session, *, key: str, subject: str) -> bool:
    """Return True if :func:`request_call` would queue such a call now."""
    made = newest_attempt(session, subject, key)
    return made is None or (made.status == IntentStatus.REVERTED and utc_now() >= made.updated_at + RETRY_AFTER)


def request_call(
    session: Session,
    *,
    key: str,
    kind: str,
    subject: str,
    contract: str,
    function: str,
    arguments: Sequence[Any],
    amount: int = 0,
    account: str = OPERATOR,
) -> None:
    """Queue the call unless it is queued, sent or successful. A refused call is queued again.

    Args:
        key: identifies the call; the key of each attempt is derived from it.
        amount: wei of ZEN that it moves by the sender's authority.
        account: account of the market that sends it.
    """
    if not should_retry(session, key=key, subject=subject):
        return
    attempt = 0
    if (made := newest_attempt(session, subject, key)) is not None:
        _log.error("chain_call_retried", key=made.key, reason=made.reason, detail=made.detail)
        attempt = int(made.key.removeprefix(f"{key}:")) + 1
    queue_intent(
        session,
        key=f"{key}:{attempt}",
        kind=kind,
        subject=subject,
        contract=contract,
        function=function,
        arguments=arguments,
        amount=amount,
        account=account,
    )
