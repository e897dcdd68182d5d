"""Tables of uploads and of their pieces."""

from datetime import datetime

from sqlalchemy import ForeignKey, ForeignKeyConstraint, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Base, Cid, UtcDateTime


class Upload(Base):
    """A unit's file that arrives in pieces, one per purpose; deleted once accepted or expired."""

    __tablename__ = "uploads"

    unit_id: Mapped[int] = mapped_column(ForeignKey("units.id"), primary_key=True)
    purpose: Mapped[str] = mapped_column(String(24), primary_key=True)  # market.training.uploads.service.Expected
    cid: Mapped[str] = mapped_column(Cid)
    joined: Mapped[bool]  # in storage as one file, and pinned
    pinned_here: Mapped[bool]  # by this upload; a file pinned before has another owner
    touched_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class UploadPiece(Base):
    """Piece of an upload in storage, not pinned until the file is complete."""

    __tablename__ = "upload_pieces"
    __table_args__ = (
        ForeignKeyConstraint(["unit_id", "purpose"], ["uploads.unit_id", "uploads.purpose"], ondelete="CASCADE"),
    )

    unit_id: Mapped[int] = mapped_column(Integer, primary_key=True)
    purpose: Mapped[str] = mapped_column(String(24), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)  # from 0
    cid: Mapped[str] = mapped_column(Cid)
    size: Mapped[int] = mapped_column(Integer)
