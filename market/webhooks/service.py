"""Webhooks: delivery of job events to an account's URLs (https://www.standardwebhooks.com).

A delivery is written in the transaction that announces its event, once per endpoint. It is attempted until the receiver
accepts it or no attempts are left. A worker claims an attempt by postponing the next one, so a crash only delays it. A
receiver may get a message twice; its id is the same.
"""

import json
import random
import threading
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from uuid import uuid4

import httpx
from sqlalchemy import exists, or_, select
from sqlalchemy.orm import Session

from market.accounts.repository import lock_account
from market.jobs import service as jobs
from market.platform.db.base import utc_now
from market.platform.db.locks import locked
from market.platform.db.session import Database, enqueue_after_commit
from market.platform.events.models import JobEventRow
from market.webhooks import http_delivery
from market.webhooks.errors import (
    DeliveryNotFound,
    TooManyWebhooks,
    WebhookAddressRefused,
    WebhookChecksBusy,
    WebhookNotFound,
)
from market.webhooks.http_delivery import AddressRefused, Outcome, Resolve, checked_addresses, new_secret
from market.webhooks.models import WebhookDelivery, WebhookEndpoint

RETRY_AFTER = tuple(
    timedelta(seconds=seconds) for seconds in (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
)
"""Delay after each failed attempt, plus up to 20 % jitter (Standard Webhooks)."""
_CLAIM = timedelta(seconds=60)  # longer than an attempt can take
_PROMPT_SECONDS = 2.0
_REST = 10  # after a slower attempt an endpoint rests this many times as long, which keeps threads for the others
_LOOKUPS = threading.BoundedSemaphore(8)  # by requests; each keeps a thread of the API until the host is found
_DELIVERIES_PER_RUN = 8
_GONE = 410


def create(
    session: Session,
    owner: str,
    url: str,
    kinds: Collection[str],
    *,
    private: bool,
    limit: int,
    resolve: Resolve = http_delivery.resolve,
) -> WebhookEndpoint:
    """Create an endpoint with a new secret.

    Raises:
        WebhookAddressRefused: the URL does not resolve to public addresses.
        TooManyWebhooks: the account has ``limit`` already.
        WebhookChecksBusy: too many hosts are being looked up.
    """
    _require_public(url, private, resolve)
    lock_account(session, owner)  # requests at once must not pass the limit together
    count = len(of_owner(session, owner))
    if count >= limit:
        raise TooManyWebhooks(f"{owner} has {count} webhooks; expected at most {limit}.")
    row = WebhookEndpoint(owner=owner, url=url, kinds=sorted(set(kinds)), secret=new_secret(), enabled=True)
    session.add(row)
    session.flush()
    return row


def of_owner(session: Session, owner: str) -> Sequence[WebhookEndpoint]:
    """Return an account's endpoints, oldest first."""
    query = select(WebhookEndpoint).where(WebhookEndpoint.owner == owner, WebhookEndpoint.deleted_at.is_(None))
    return session.scalars(query.order_by(WebhookEndpoint.id)).all()


def get(session: Session, owner: str, endpoint_id: int) -> WebhookEndpoint:
    """Lock one endpoint of the account. Raises WebhookNotFound."""
    row = session.get(WebhookEndpoint, endpoint_id, with_for_update={"key_share": True})
    if row is None or row.owner != owner or row.deleted_at is not None:
        raise WebhookNotFound(f"{owner} has no webhook {endpoint_id}", field="webhook_id")
    return row


def change(
    session: Session,
    row: WebhookEndpoint,
    *,
    url: str | None,
    kinds: Collection[str] | None,
    enabled: bool | None,
    private: bool,
) -> None:
    """Change the given fields of an endpoint.

    Raises:
        WebhookAddressRefused: the URL does not resolve to public addresses.
        WebhookChecksBusy: too many hosts are being looked up.
    """
    if url is not None:
        _require_public(url, private, http_delivery.resolve)
        row.url = url
    if kinds is not None:
        row.kinds = sorted(set(kinds))
    if enabled is not None:
        row.enabled = enabled
        enqueue_after_commit(session, "webhooks.deliver")


def rotate_secret(row: WebhookEndpoint, overlap: timedelta) -> None:
    """Replace the secret. During ``overlap``, messages are also signed with the old one."""
    row.old_secret, row.old_secret_until = row.secret, utc_now() + overlap
    row.secret = new_secret()


def delete(row: WebhookEndpoint) -> None:
    """Delete an endpoint. Its pending deliveries are never sent."""
    row.deleted_at, row.enabled = utc_now(), False


def deliveries(session: Session, endpoint_id: int, before: int | None, limit: int) -> Sequence[WebhookDelivery]:
    """Return an endpoint's deliveries below the id ``before``, newest first."""
    query = select(WebhookDelivery).where(WebhookDelivery.endpoint_id == endpoint_id)
    if before is not None:
        query = query.where(WebhookDelivery.id < before)
    return session.scalars(query.order_by(WebhookDelivery.id.desc()).limit(limit)).all()


def replay(session: Session, endpoint_id: int, delivery_id: int) -> WebhookDelivery:
    """Send a delivery again as the same message, with all attempts. Raises DeliveryNotFound."""
    row = session.get(WebhookDelivery, delivery_id, with_for_update=True)
    if row is None or row.endpoint_id != endpoint_id:
        raise DeliveryNotFound(f"webhook {endpoint_id} has no delivery {delivery_id}", field="delivery_id")
    row.status, row.attempts, row.next_attempt_at = "pending", 0, utc_now()
    enqueue_after_commit(session, "webhooks.deliver")
    return row


def fan_out(session: Session, event_ids: Collection[int]) -> None:
    """Write the deliveries of events announced in this transaction."""
    events = session.scalars(select(JobEventRow).where(JobEventRow.id.in_(event_ids)).order_by(JobEventRow.id)).all()
    payers = jobs.payers_of(session, {event.job_id for event in events})
    query = select(WebhookEndpoint).where(
        WebhookEndpoint.owner.in_(set(payers.values())), WebhookEndpoint.enabled, WebhookEndpoint.deleted_at.is_(None)
    )
    endpoints = session.scalars(query).all()
    now = utc_now()
    for event in events:
        for endpoint in endpoints:
            if endpoint.owner == payers.get(event.job_id) and event.kind in endpoint.kinds:
                session.add(
                    WebhookDelivery(
                        endpoint_id=endpoint.id,
                        event_id=event.id,
                        message_id=f"msg_{uuid4().hex}",
                        payload=_payload(event),
                        status="pending",
                        next_attempt_at=now,
                    )
                )
                enqueue_after_commit(session, "webhooks.deliver")


def deliver_due(database: Database, *, private: bool, resolve: Resolve = http_delivery.resolve) -> int:
    """Attempt due deliveries, one at a time for each endpoint; return their number.

    No transaction is open during an attempt.
    """
    attempts = 0
    attempt = partial(_attempt, database, private=private, resolve=resolve)
    with ThreadPoolExecutor(_DELIVERIES_PER_RUN) as pool:  # a slow receiver must not delay the others
        while claimed := _claim(database):
            attempts += sum(pool.map(attempt, claimed))
    return attempts


def _claim(database: Database) -> list[int]:
    """Claim the oldest due delivery of the endpoints that were served least recently."""
    with database.transaction() as session:
        now = utc_now()
        is_due = (WebhookDelivery.status == "pending", WebhookDelivery.next_attempt_at <= now)
        waiting = exists().where(WebhookDelivery.endpoint_id == WebhookEndpoint.id, *is_due)
        is_free = or_(WebhookEndpoint.busy_until.is_(None), WebhookEndpoint.busy_until <= now)
        endpoints = (
            select(WebhookEndpoint)
            .where(WebhookEndpoint.enabled, is_free, waiting)
            .order_by(WebhookEndpoint.busy_until.nulls_first(), WebhookEndpoint.id)
            .limit(_DELIVERIES_PER_RUN)
        )
        claimed = []
        for endpoint in session.scalars(locked(endpoints, skip_locked=True)).all():
            oldest = (
                select(WebhookDelivery)
                .where(WebhookDelivery.endpoint_id == endpoint.id, *is_due)
                .order_by(WebhookDelivery.next_attempt_at, WebhookDelivery.id)
                .limit(1)
            )
            row = session.scalars(locked(oldest, skip_locked=True)).first()
            if row is not None:
                row.next_attempt_at = endpoint.busy_until = now + _CLAIM
                claimed.append(row.id)
        return claimed


def _attempt(database: Database, delivery_id: int, *, private: bool, resolve: Resolve) -> int:
    now = utc_now()
    with database.transaction() as session:
        row = session.get_one(WebhookDelivery, delivery_id)
        endpoint = session.get_one(WebhookEndpoint, row.endpoint_id)
        if row.status != "pending" or not endpoint.enabled:
            return 0
        signing = _secrets(endpoint, now)
        url, endpoint_id, message_id = endpoint.url, endpoint.id, row.message_id
        payload = json.dumps(row.payload, separators=(",", ":")).encode()
    began = time.monotonic()
    outcome = http_delivery.send(
        url,
        signing=signing,
        message_id=message_id,
        timestamp=int(now.timestamp()),
        payload=payload,
        private=private,
        resolve=resolve,
    )
    seconds = time.monotonic() - began
    with database.transaction() as session:
        endpoint = session.get_one(WebhookEndpoint, endpoint_id, with_for_update={"key_share": True})
        row = session.get_one(WebhookDelivery, delivery_id, with_for_update=True)
        endpoint.busy_until = utc_now() + timedelta(seconds=_REST * seconds if seconds > _PROMPT_SECONDS else 0)
        _apply(row, endpoint, outcome)
    return 1


def _secrets(endpoint: WebhookEndpoint, now: datetime) -> list[str]:
    if endpoint.old_secret is None or endpoint.old_secret_until is None or now >= endpoint.old_secret_until:
        return [endpoint.secret]
    return [endpoint.secret, endpoint.old_secret]


def _apply(row: WebhookDelivery, endpoint: WebhookEndpoint, outcome: Outcome) -> None:
    now = utc_now()
    row.attempts += 1
    row.response_status, row.error = outcome.status, outcome.error
    if outcome.error is None:
        row.status, row.delivered_at = "delivered", now
    elif outcome.status == _GONE:
        row.status = "failed"
        endpoint.enabled = False
    elif row.attempts > len(RETRY_AFTER):
        row.status = "failed"
    else:
        row.next_attempt_at = now + RETRY_AFTER[row.attempts - 1] * random.uniform(1, 1.2)


def _payload(event: JobEventRow) -> dict[str, object]:
    data = {"job_id": event.job_id, "event_id": event.id, **event.data}
    return {"type": f"job.{event.kind}", "timestamp": event.created_at.isoformat(), "data": data}


def _require_public(url: str, private: bool, resolve: Resolve) -> None:
    if not _LOOKUPS.acquire(blocking=False):
        raise WebhookChecksBusy("the hosts of other webhooks are being looked up", field="url")
    try:
        checked_addresses(httpx.URL(url), private=private, resolve=resolve)
    except (AddressRefused, httpx.InvalidURL) as error:
        raise WebhookAddressRefused(f"{url[:200]}: {error}", field="url") from error
    finally:
        _LOOKUPS.release()
