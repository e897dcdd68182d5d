"""Tables of uploads and of their chunks."""

from datetime import datetime

from sqlalchemy import ForeignKey, ForeignKeyConstraint, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Base, Cid, UtcDateTime


class Upload(Base):
    """A file of a unit that arrives in pieces: at most one for each purpose, gone once it was accepted or forgotten."""

    __tablename__ = "uploads"

    unit_id: Mapped[int] = mapped_column(ForeignKey("units.id"), primary_key=True)
    purpose: Mapped[str] = mapped_column(String(24), primary_key=True)  # market.training.uploads.service.Expected
    cid: Mapped[str] = mapped_column(Cid)
    joined: Mapped[bool]  # in storage as one file, and pinned
    pinned_here: Mapped[bool]  # by this upload; a file that was pinned before is somebody else's to release
    touched_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class UploadPiece(Base):
    """A piece of an upload that storage has, not pinned: it may be lost until the file is joined."""

    __tablename__ = "upload_pieces"
    __table_args__ = (
        ForeignKeyConstraint(["unit_id", "purpose"], ["uploads.unit_id", "uploads.purpose"], ondelete="CASCADE"),
    )

    unit_id: Mapped[int] = mapped_column(Integer, primary_key=True)
    purpose: Mapped[str] = mapped_column(String(24), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)  # from 0
    cid: Mapped[str] = mapped_column(Cid)
    size: Mapped[int] = mapped_column(Integer)
