"""Table of the samples of jobs' models."""

from datetime import datetime

from sqlalchemy import BigInteger, Float, ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Base, Cid, CreatedAt, UtcDateTime


class Generation(Base, CreatedAt):
    """Request for a model's text after a prompt, and that text; deleted after an hour.

    The request waits until ``started_at``. ``ended_at`` comes with ``text`` and ``tokens``, or with the code
    ``failure``.
    """

    __tablename__ = "generations"
    __table_args__ = (Index("ix_generations_account", "account", "created_at"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    account: Mapped[str] = mapped_column(ForeignKey("accounts.address"))
    round: Mapped[int] = mapped_column(Integer)  # of the checkpoint
    model_cid: Mapped[str] = mapped_column(Cid)
    prompt: Mapped[str] = mapped_column(Text)
    length: Mapped[int] = mapped_column(Integer)
    temperature: Mapped[float] = mapped_column(Float)
    seed: Mapped[int] = mapped_column(BigInteger)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    text: Mapped[str | None] = mapped_column(Text)
    tokens: Mapped[int | None] = mapped_column(Integer)
    failure: Mapped[str | None] = mapped_column(String(32))
