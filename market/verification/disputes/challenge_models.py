"""Table of the market's own disputes."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, Integer, String, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from market.chain.contracts.codec import Json
from market.platform.db.base import Address, Base, Cid, CreatedAt, Hash32, UtcDateTime


class Challenge(Base, CreatedAt):
    """The market's dispute of a unit: claim and outcome; ``Dispute`` has the chain's state.

    It is written in the transaction that disputes the unit, with all arguments of ``Disputes.open``. Its id follows
    from unit and challenger, so a restarted market opens the same dispute, once.
    """

    __tablename__ = "challenges"
    __table_args__ = (Index("ix_challenges_open", "provider", postgresql_where=text("status = 'open'")),)

    unit_id: Mapped[int] = mapped_column(ForeignKey("units.id"), primary_key=True)
    dispute_id: Mapped[str] = mapped_column(Hash32, unique=True)  # in the contract
    unit_key: Mapped[str] = mapped_column(Hash32)
    job_id: Mapped[str] = mapped_column(Hash32)
    round: Mapped[int] = mapped_column(Integer)
    slot: Mapped[int] = mapped_column(Integer)
    provider: Mapped[str] = mapped_column(Address)
    challenger: Mapped[str] = mapped_column(Address)
    step: Mapped[int] = mapped_column(Integer)  # segment with the rejected end
    status: Mapped[str] = mapped_column(String(16))  # lifecycle.ChallengeStatus
    reason: Mapped[str | None] = mapped_column(String(64))
    evidence_cid: Mapped[str] = mapped_column(Cid)
    open_by: Mapped[datetime] = mapped_column(UtcDateTime)  # last second at which the contract opens it
    arguments: Mapped[list[Json]] = mapped_column(JSONB)  # of Disputes.open
    convicted_in: Mapped[str | None] = mapped_column(Hash32)  # upheld dispute of the unit, if any
