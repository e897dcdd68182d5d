"""Queries over files that arrive in pieces."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import delete, exists, func, or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from market.training.checkpoints.models import Checkpoint
from market.training.units.models import Unit
from market.training.uploads.models import Upload, UploadPiece


def lock_upload(session: Session, unit_id: int, purpose: str) -> Upload | None:
    query = select(Upload).where(Upload.unit_id == unit_id, Upload.purpose == purpose).with_for_update()
    return session.scalar(query.execution_options(populate_existing=True))


def begin(session: Session, unit_id: int, purpose: str, cid: str, now: datetime) -> Upload:
    """Return the upload for this purpose, locked; create it for ``cid`` if there is none."""
    row = {"cid": cid, "joined": False, "pinned_here": False, "touched_at": now}
    made = insert(Upload).values(unit_id=unit_id, purpose=purpose, **row)
    session.execute(made.on_conflict_do_nothing())
    found = lock_upload(session, unit_id, purpose)
    assert found is not None  # inserted above at the latest
    return found


def pieces(session: Session, unit_id: int, purpose: str) -> Sequence[UploadPiece]:
    query = select(UploadPiece).where(UploadPiece.unit_id == unit_id, UploadPiece.purpose == purpose)
    return session.scalars(query.order_by(UploadPiece.number)).all()


def replaced_bytes(session: Session, upload: Upload, cid: str, number: int, piece_cid: str) -> int:
    """Return the stored bytes that piece ``number`` of the file ``cid`` replaces."""
    if upload.cid != cid:
        mine = (UploadPiece.unit_id == upload.unit_id, UploadPiece.purpose == upload.purpose)
        return session.scalar(select(func.coalesce(func.sum(UploadPiece.size), 0)).where(*mine)) or 0
    known = session.get(UploadPiece, (upload.unit_id, upload.purpose, number))
    return 0 if known is None or known.cid == piece_cid else known.size


def put_piece(session: Session, unit_id: int, purpose: str, number: int, cid: str, size: int) -> None:
    row = insert(UploadPiece).values(unit_id=unit_id, purpose=purpose, number=number, cid=cid, size=size)
    is_same = {"index_elements": ["unit_id", "purpose", "number"], "set_": {"cid": cid, "size": size}}
    session.execute(row.on_conflict_do_update(**is_same))  # type: ignore[arg-type]


def delete_pieces(session: Session, unit_id: int, purpose: str) -> None:
    session.execute(delete(UploadPiece).where(UploadPiece.unit_id == unit_id, UploadPiece.purpose == purpose))


def delete_uploads(session: Session, unit_id: int, purposes: Collection[str]) -> None:
    session.execute(delete(Upload).where(Upload.unit_id == unit_id, Upload.purpose.in_(purposes)))


def stale(session: Session, before: datetime, *, without: str) -> Sequence[Upload]:
    """Return up to 100 uploads unchanged since ``before``, but no purpose from ``without``."""
    query = select(Upload).where(Upload.touched_at < before, ~Upload.purpose.startswith(without, autoescape=True))
    return session.scalars(query.order_by(Upload.touched_at).limit(100)).all()


def uploads_for(session: Session, purposes: str) -> Sequence[Upload]:
    """Return the uploads whose purposes start with ``purposes``, oldest first."""
    query = select(Upload).where(Upload.purpose.startswith(purposes, autoescape=True))
    return session.scalars(query.order_by(Upload.touched_at)).all()


def last_changes(session: Session, unit_ids: Collection[int], purpose: str) -> dict[int, datetime]:
    """Return by unit the time of the last change of its upload for this purpose."""
    query = select(Upload.unit_id, Upload.touched_at).where(Upload.unit_id.in_(unit_ids), Upload.purpose == purpose)
    return dict(session.execute(query).tuples().all())


def is_named(session: Session, cid: str) -> bool:
    """Return True if the file is a payload, published replica state or part of a checkpoint."""
    of_unit = or_(Unit.payload_cid == cid, (Unit.slot_state_cid == cid) & Unit.slot_state_public)
    of_checkpoint = exists().where(Checkpoint.file_cids.contains([cid]))
    return bool(session.scalar(select(or_(exists().where(of_unit), of_checkpoint))))
