"""Tables of commitment windows and omission claims."""

from datetime import datetime

from sqlalchemy import BigInteger, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Address, Base, CreatedAt, Hash32, UtcDateTime, Wei


class Window(Base, CreatedAt):
    """Merkle root over uploaded units of all jobs, on chain before its seed exists."""

    __tablename__ = "windows"

    id: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(String(16), index=True)  # lifecycle.WindowStatus
    reason: Mapped[str | None] = mapped_column(String(64))
    root: Mapped[str] = mapped_column(Hash32, unique=True)
    leaf_count: Mapped[int] = mapped_column(Integer)
    chain_id_in_contract: Mapped[int | None] = mapped_column(BigInteger, unique=True)
    seed_block: Mapped[int | None] = mapped_column(BigInteger)
    seed: Mapped[str | None] = mapped_column(Hash32)
    commit_tx: Mapped[str | None] = mapped_column(Hash32)
    committed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)  # by the chain's clock
    latch_tx: Mapped[str | None] = mapped_column(Hash32)


class OmissionClaim(Base, CreatedAt):
    """Provider's on-chain claim of an omitted acknowledged commitment (``leaf``: unitId)."""

    __tablename__ = "omission_claims"

    leaf: Mapped[str] = mapped_column(Hash32, primary_key=True)
    provider: Mapped[str] = mapped_column(Address, index=True)
    status: Mapped[str] = mapped_column(String(16), index=True)  # lifecycle.OmissionStatus
    reason: Mapped[str | None] = mapped_column(String(64))
    include_by: Mapped[datetime] = mapped_column(UtcDateTime)
    deadline: Mapped[datetime] = mapped_column(UtcDateTime)  # last second to answer
    compensation_wei: Mapped[int | None] = mapped_column(Wei)
    tx: Mapped[str | None] = mapped_column(Hash32)  # that answered or compensated
