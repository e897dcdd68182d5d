"""The table of what accounts have lately put on storage."""

from sqlalchemy import BigInteger, Identity, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Address, Base, Cid, CreatedAt


class BlobUpload(Base, CreatedAt):
    """Bytes that an account put on storage, which count against its quota for a day.

    A unit's file does so only until its delivery is accepted: then the row goes.
    """

    __tablename__ = "blob_uploads"
    __table_args__ = (
        UniqueConstraint("account", "cid"),
        Index("ix_blob_uploads_account_created_at", "account", "created_at"),
        Index("ix_blob_uploads_created_at", "created_at"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    account: Mapped[str] = mapped_column(Address)
    cid: Mapped[str | None] = mapped_column(Cid)  # None: on its way to storage, or a piece that another one replaced
    charged: Mapped[int] = mapped_column(BigInteger)  # bytes
