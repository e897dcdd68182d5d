"""Tables of checkpoints and of their copies on nodes."""

from sqlalchemy import Boolean, ForeignKey, Index, Integer, String, UniqueConstraint, false
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Address, Base, Cid, CreatedAt, Hash32


class Checkpoint(Base, CreatedAt):
    """The model before round ``round`` (0: the initial one); ``cid`` is its manifest."""

    __tablename__ = "checkpoints"
    __table_args__ = (
        UniqueConstraint("job_id", "round"),
        Index("ix_checkpoints_file_cids", "file_cids", postgresql_using="gin"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), index=True)
    round: Mapped[int] = mapped_column(Integer)
    cid: Mapped[str] = mapped_column(Cid)
    model_cid: Mapped[str] = mapped_column(Cid)
    file_cids: Mapped[list[str]] = mapped_column(JSONB)  # without replica states, in the order of a pin proof
    rolled_back_to: Mapped[int | None] = mapped_column(Integer)  # round of the checkpoint that it repeats
    rollback_reason: Mapped[str | None] = mapped_column(String(32))  # code of training_faults.FAULTS
    validation_loss: Mapped[str | None] = mapped_column(String(32))  # decimal string, 6 places; None: not yet known
    validation_error: Mapped[str | None] = mapped_column(String(32))  # its standard error; None: unknown
    validation_samples: Mapped[int | None] = mapped_column(Integer)  # that it is the loss of
    origin_loss: Mapped[str | None] = mapped_column(String(32))  # of round 0: first loss of the jobs that it continues
    is_stated: Mapped[bool] = mapped_column(Boolean, server_default=false())  # verifiers' loss, not the market's own


class Pin(Base, CreatedAt):
    """A provider's proven copy of a checkpoint: it hashed a fresh nonce with every block."""

    __tablename__ = "pins"

    checkpoint_id: Mapped[int] = mapped_column(ForeignKey("checkpoints.id"), primary_key=True)
    provider: Mapped[str] = mapped_column(Address, primary_key=True)
    nonce: Mapped[str] = mapped_column(Hash32)
    proof: Mapped[str] = mapped_column(Hash32)


class StatePin(Base, CreatedAt):
    """A provider's proven copy of a published replica state at a unit's end."""

    __tablename__ = "state_pins"

    unit_id: Mapped[int] = mapped_column(ForeignKey("units.id"), primary_key=True)
    provider: Mapped[str] = mapped_column(Address, primary_key=True)
    nonce: Mapped[str] = mapped_column(Hash32)
    proof: Mapped[str] = mapped_column(Hash32)
