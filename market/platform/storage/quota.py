"""How much an account may put on storage in a day.

Nobody pays for an upload, so without a bound any stranger could fill the operator's disk. Room is taken before bytes
reach storage, one upload of an account after the other, so that several at once cannot pass together. What a lease
asked for is bounded by its job's specification instead, and stops counting once its delivery is accepted.
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


LEAST_CHARGE = 1 << 16
"""Bytes that the smallest upload counts for: its pin, and its row here, are not free either."""


_LOCK_SPACE = zlib.crc32(b"blob_uploads") - 2**31  # advisory locks take two signed 32-bit numbers


def require_room(session: Session, account: str, size: int, quota: int) -> None:
    """Check that the account may still put ``size`` bytes on storage; ``quota`` in bytes a day.

    Raises:
        StorageQuotaExceeded: it may not.
    """
    since = utc_now() - PERIOD
    mine = (BlobUpload.account == account, BlobUpload.created_at > since)
    used, oldest = session.execute(
        select(func.coalesce(func.sum(BlobUpload.charged), 0), func.min(BlobUpload.created_at)).where(*mine)
    ).one()
    if used + max(size, LEAST_CHARGE) <= quota:
        return
    extra: dict[str, object] = {"quota_bytes": quota, "used_bytes": int(used)}
    if oldest is not None:
        extra["not_before"] = f"{oldest + PERIOD:%Y-%m-%dT%H:%M:%SZ}"
    detail = f"{account} has put {used} bytes on storage within a day, and may put {quota}; these are {size} more."
    raise StorageQuotaExceeded(detail, field="body", extra=extra)


def take_room(session: Session, account: str, size: int, quota: int) -> int:
    """Count ``size`` bytes against the account's quota; the row's id. Raises StorageQuotaExceeded."""
    lock = zlib.crc32(account.encode()) - 2**31
    session.execute(select(func.pg_advisory_xact_lock(_LOCK_SPACE, lock)))
    require_room(session, account, size, quota)
    upload = BlobUpload(account=account, charged=max(size, LEAST_CHARGE))
    session.add(upload)
    session.flush()
    return upload.id


def give_room_back(session: Session, upload_id: int) -> None:
    """Nothing came of an upload."""
    session.execute(delete(BlobUpload).where(BlobUpload.id == upload_id))


def note_stored(session: Session, upload_id: int, cid: str) -> None:
    """The upload is on storage. Bytes that the account has put there before count once."""
    upload = session.get(BlobUpload, upload_id)
    if upload is None:
        return
    lock = zlib.crc32(upload.account.encode()) - 2**31
    session.execute(select(func.pg_advisory_xact_lock(_LOCK_SPACE, lock)))  # the same bytes may come twice at once
    if uploaded_at(session, upload.account, cid) is None:
        upload.cid = cid
    else:
        session.delete(upload)


def uploaded_at(session: Session, account: str, cid: str) -> datetime | None:
    """When the account put this file on storage; None if it did not, or more than a day ago."""
    query = select(BlobUpload.created_at).where(BlobUpload.account == account, BlobUpload.cid == cid)
    return session.scalar(query)


def taken_over(session: Session, account: str, cids: Collection[str | None]) -> None:
    """These files of the account's are needed from now on, and count no longer."""
    named = [cid for cid in cids if cid is not None]
    session.execute(delete(BlobUpload).where(BlobUpload.account == account, BlobUpload.cid.in_(named)))


def forget(session: Session, before: datetime) -> None:
    """Drop the rows from before then, which count no longer."""
    session.execute(delete(BlobUpload).where(BlobUpload.created_at < before))
