"""Table of recent uploads to storage."""

from sqlalchemy import BigInteger, Identity, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Address, Base, Cid, CreatedAt


class BlobUpload(Base, CreatedAt):
    """Upload of an account, which counts against its quota for a day.

    The row of a unit's file is deleted when the market accepts the delivery.
    """

    __tablename__ = "blob_uploads"
    __table_args__ = (
        UniqueConstraint("account", "cid"),
        Index("ix_blob_uploads_account_created_at", "account", "created_at"),
        Index("ix_blob_uploads_created_at", "created_at"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    account: Mapped[str] = mapped_column(Address)
    cid: Mapped[str | None] = mapped_column(Cid)  # None: not stored yet, or a chunk that another one replaced
    charged: Mapped[int] = mapped_column(BigInteger)  # bytes
