"""Tables of slashes and of penalties for late states."""

from typing import ClassVar

from sqlalchemy import ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from market.domain.verification.dispute_routes import DecidedBy, Reason
from market.domain.verification.late_states import BANDWIDTH_VIOLATION
from market.platform.db.base import Address, Base, Cid, CreatedAt, Hash32, Wei


class LatePenalty(Base, CreatedAt):
    """Penalty for states late on too many days; amount and tx from the final event.

    The operator brings it, since lateness cannot be replayed.
    """

    __tablename__ = "late_penalties"

    id: Mapped[int] = mapped_column(primary_key=True)
    provider: Mapped[str] = mapped_column(Address, index=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))  # of the last late state
    evidence: Mapped[str] = mapped_column(Hash32, unique=True)  # digest of the evidence document
    evidence_cid: Mapped[str] = mapped_column(Cid)
    amount_wei: Mapped[int | None] = mapped_column(Wei)
    tx: Mapped[str | None] = mapped_column(Hash32)
    offence: ClassVar[str] = BANDWIDTH_VIOLATION
    path: ClassVar[str] = DecidedBy.OPERATOR
    path_reason: ClassVar[str] = Reason.NOT_REPLAYABLE


class Slash(Base, CreatedAt):
    """Penalty for work that a replay refutes; amount and tx are from the final event.

    ``path`` is the decider: a committee, or the operator with ``path_reason``. ``provider`` is the slashed wallet: the
    unit's provider or, with ``replay_id``, a verifier.
    """

    __tablename__ = "slashes"
    __table_args__ = (UniqueConstraint("unit_id", "provider"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), index=True)
    unit_id: Mapped[int] = mapped_column(ForeignKey("units.id"))
    replay_id: Mapped[int | None] = mapped_column(ForeignKey("replays.id"), unique=True)
    provider: Mapped[str] = mapped_column(Address, index=True)
    offence: Mapped[str] = mapped_column(String(32))
    evidence: Mapped[str] = mapped_column(Hash32, unique=True)  # on chain: digest of the evidence, or id of the dispute
    evidence_cid: Mapped[str] = mapped_column(Cid)
    path: Mapped[str] = mapped_column(String(16), server_default="operator")  # dispute_routes.DecidedBy
    path_reason: Mapped[str | None] = mapped_column(String(64))
    amount_wei: Mapped[int | None] = mapped_column(Wei)
    tx: Mapped[str | None] = mapped_column(Hash32)
