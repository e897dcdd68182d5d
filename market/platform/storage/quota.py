"""Storage quota of an account per day.

Uploads are free, so an untrusted peer could fill the operator's disk without a quota. Room is reserved before the
upload, under a lock per account, so that parallel uploads cannot exceed it. Files of a lease are bounded by the job's
specification; they stop counting when the market accepts the delivery.
"""

import zlib
from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from market.platform.db.base import utc_now
from market.platform.http.errors import StorageQuotaExceeded
from market.platform.storage.models import BlobUpload

PERIOD = timedelta(days=1)

MIN_CHARGE_BYTES = 1 << 16
"""Minimum charge of an upload in bytes, for its pin and its row."""

_LOCK_SPACE = zlib.crc32(b"blob_uploads") - 2**31  # advisory locks take two signed 32-bit numbers


def require_quota(session: Session, account: str, size: int, quota: int) -> None:
    """Check that the account may store ``size`` more bytes; ``quota`` is in bytes per day.

    Raises:
        StorageQuotaExceeded: if the quota does not suffice.
    """
    since = utc_now() - PERIOD
    mine = (BlobUpload.account == account, BlobUpload.created_at > since)
    used, oldest = session.execute(
        select(func.coalesce(func.sum(BlobUpload.charged), 0), func.min(BlobUpload.created_at)).where(*mine)
    ).one()
    if used + max(size, MIN_CHARGE_BYTES) <= quota:
        return
    extra: dict[str, object] = {"quota_bytes": quota, "used_bytes": int(used)}
    if oldest is not None:
        extra["not_before"] = f"{oldest + PERIOD:%Y-%m-%dT%H:%M:%SZ}"
    detail = f"{account} has stored {used} of {quota} bytes within a day; {size} more exceed the quota."
    raise StorageQuotaExceeded(detail, field="body", extra=extra)


def charge(session: Session, account: str, size: int, quota: int) -> int:
    """Charge ``size`` bytes to the quota and return the row's id. Raises StorageQuotaExceeded."""
    lock = zlib.crc32(account.encode()) - 2**31
    session.execute(select(func.pg_advisory_xact_lock(_LOCK_SPACE, lock)))
    require_quota(session, account, size, quota)
    upload = BlobUpload(account=account, charged=max(size, MIN_CHARGE_BYTES))
    session.add(upload)
    session.flush()
    return upload.id


def refund(session: Session, upload_id: int) -> None:
    """Delete the charge of a failed upload."""
    session.execute(delete(BlobUpload).where(BlobUpload.id == upload_id))


def record_stored(session: Session, upload_id: int, cid: str, size: int) -> None:
    """Record that the upload is stored, with its size in bytes.

    Content that the account has stored within a day counts once.
    """
    upload = session.get(BlobUpload, upload_id)
    if upload is None:
        return
    lock = zlib.crc32(upload.account.encode()) - 2**31
    session.execute(select(func.pg_advisory_xact_lock(_LOCK_SPACE, lock)))  # two uploads may have the same content
    mine = (BlobUpload.account == upload.account, BlobUpload.cid == cid)
    session.execute(delete(BlobUpload).where(*mine, BlobUpload.created_at <= utc_now() - PERIOD))
    if uploaded_at(session, upload.account, cid) is None:
        upload.cid, upload.charged = cid, max(size, MIN_CHARGE_BYTES)
    else:
        session.delete(upload)


def uploaded_at(session: Session, account: str, cid: str) -> datetime | None:
    """Return the time at which the account stored this file within the last day, or None."""
    query = select(BlobUpload.created_at).where(BlobUpload.account == account, BlobUpload.cid == cid)
    return session.scalar(query)


def stored_within_day(session: Session, account: str, cids: Collection[str]) -> set[str]:
    """Return those of the files that the account stored within the last day."""
    query = select(BlobUpload.cid).where(BlobUpload.account == account, BlobUpload.cid.in_(cids))
    return {cid for cid in session.scalars(query.where(BlobUpload.created_at > utc_now() - PERIOD)) if cid is not None}


def stop_charging(session: Session, account: str, cids: Collection[str | None]) -> None:
    """Stop charging these files to the account, because the market needs them."""
    named = [cid for cid in cids if cid is not None]
    session.execute(delete(BlobUpload).where(BlobUpload.account == account, BlobUpload.cid.in_(named)))


def delete_expired(session: Session, before: datetime) -> None:
    """Delete the rows from before ``before``, which have expired."""
    session.execute(delete(BlobUpload).where(BlobUpload.created_at < before))
