"""Table of units, with a trigger (``_TRIGGER``)."""

from datetime import datetime
from typing import Any

from sqlalchemy import DDL, BigInteger, CheckConstraint, ForeignKey, Index, Integer, String, event, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Address, Base, Cid, CreatedAt, Hash32, UtcDateTime

# The trigger is created after the table.
_TRIGGER = (
    """
    CREATE FUNCTION units_keep_batch() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT FROM settlement_batches WHERE id = OLD.settlement_id AND void_reason IS NULL) THEN
            RAISE EXCEPTION 'unit % is in settlement batch %, which stands', OLD.id, OLD.settlement_id
                USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN NEW;
    END $$
    """,
    """
    CREATE TRIGGER units_keep_batch BEFORE UPDATE OF settlement_id ON units FOR EACH ROW
    WHEN (OLD.settlement_id IS NOT NULL AND NEW.settlement_id IS DISTINCT FROM OLD.settlement_id)
    EXECUTE FUNCTION units_keep_batch()
    """,
)


class Unit(Base, CreatedAt):
    """Work of one replica in one outer round: committed, verified and paid."""

    __tablename__ = "units"
    __table_args__ = (
        # Another node may take over a lost or rejected unit while its round is open.
        Index(
            "uq_units_live",
            "job_id",
            "round",
            "slot",
            unique=True,
            postgresql_where=text("status NOT IN ('lost', 'rejected')"),
        ),
        Index(
            "ix_units_windowless",
            "committed_at",
            "id",
            postgresql_where=text("window_id IS NULL AND commitment_signature IS NOT NULL"),
        ),
        Index(
            "ix_units_unpaid", "job_id", "round", postgresql_where=text("status = 'verified' AND settlement_id IS NULL")
        ),
        Index("ix_units_payload_cid", "payload_cid"),
        Index("ix_units_probe", "job_id", "id", postgresql_where=text("probe IS NOT NULL")),
        Index("ix_units_provider_uploaded_at", "provider", "uploaded_at"),
        Index("ix_units_slot_state_round", "job_id", "slot_state_round"),
        Index("ix_units_slot_state_cid", "slot_state_cid"),
        Index("ix_units_slot_state_public", "id", postgresql_where=text("slot_state_public")),
        Index("ix_units_start_slot_state_cid", "start_slot_state_cid"),
        Index("ix_units_to_restore", "job_id", "slot", postgresql_where=text("to_restore")),
        CheckConstraint("settlement_id IS NULL OR status = 'verified'", name="only_verified_is_paid"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), index=True)
    round: Mapped[int] = mapped_column(Integer)
    slot: Mapped[int] = mapped_column(Integer)
    provider: Mapped[str] = mapped_column(Address, index=True)
    status: Mapped[str] = mapped_column(String(16), index=True)  # lifecycle.UnitStatus
    reason: Mapped[str | None] = mapped_column(String(64))
    start_checkpoint_cid: Mapped[str] = mapped_column(Cid)
    # Its start: a replica state (None: a fresh one) and a payload restored to it.
    start_slot_state_cid: Mapped[str | None] = mapped_column(Cid)
    start_slot_state_digest: Mapped[str | None] = mapped_column(Hash32)
    start_restored_payload_cid: Mapped[str | None] = mapped_column(Cid)
    # The replica's payload that the start checkpoint lacks and that moves the start parameters.
    start_eager_payload_cid: Mapped[str | None] = mapped_column(Cid)
    probe: Mapped[str | None] = mapped_column(Hash32)  # digest of the node's first steps of the job's shapes
    trace_root: Mapped[str | None] = mapped_column(Hash32)
    payload_hash: Mapped[str | None] = mapped_column(Hash32)
    commitment_signature: Mapped[str | None] = mapped_column(String(132))
    leaves: Mapped[list[str] | None] = mapped_column(JSONB)  # private until the unit is decided
    salt: Mapped[str | None] = mapped_column(Hash32)
    payload_cid: Mapped[str | None] = mapped_column(Cid)
    payload_sha256: Mapped[str | None] = mapped_column(Hash32)
    top_k: Mapped[int | None] = mapped_column(Integer)  # entries per chunk of its payload; None: the job's
    # Its end replica state as its node declared it: the file, which stays there, and the digest in the last leaf.
    slot_state_cid: Mapped[str | None] = mapped_column(Cid)
    slot_state_digest: Mapped[str | None] = mapped_column(Hash32)
    slot_state_public: Mapped[bool] = mapped_column(default=False, server_default="false")  # in storage, and checked
    slot_state_round: Mapped[int | None] = mapped_column(Integer)  # of the newest kept checkpoint that names it
    uploaded_bytes: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")  # measured by the market
    train_loss: Mapped[str | None] = mapped_column(String(32))  # decimal string, informative only
    # Record of its start checkpoint's losses (training_gym.evaluate.sums), which its last leaf binds; None: none.
    evaluation: Mapped[str | None] = mapped_column(String(512))
    included: Mapped[bool | None]  # in the aggregation of its round, or of a later one if late; None: not decided
    # Outlier flags of its payload (training_gym.verify.consistency); None: not examined.
    doubts: Mapped[list[str] | None] = mapped_column(JSONB)
    rounds_late: Mapped[int | None] = mapped_column(Integer)  # rounds closed between its own and its delivery
    exclusion_reason: Mapped[str | None] = mapped_column(String(64))
    # Its payload was excluded and its error feedback kept: a later unit's start gets the payload restored.
    to_restore: Mapped[bool] = mapped_column(default=False, server_default="false")
    report: Mapped[dict[str, Any] | None] = mapped_column(JSONB)  # schemas.NodeReport: the node's own measurements
    window_id: Mapped[int | None] = mapped_column(ForeignKey("windows.id"), index=True)
    window_index: Mapped[int | None] = mapped_column(Integer)
    sampling_bps: Mapped[int | None] = mapped_column(Integer)
    # Sampled segments that only a verifier of another environment class passed. None: not decided.
    tolerated_segments: Mapped[list[int] | None] = mapped_column(JSONB)
    committed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    uploaded_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    decided_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    settled_at: Mapped[datetime | None] = mapped_column(UtcDateTime)  # its batch is final on chain; counts as history
    dispute_id: Mapped[str | None] = mapped_column(Hash32)  # the market's dispute of the unit, in the contract
    # The batch that pays it. A trigger keeps a unit in its batch while that is valid.
    settlement_id: Mapped[int | None] = mapped_column(ForeignKey("settlement_batches.id"), index=True)
    settlement_reason: Mapped[str | None] = mapped_column(String(64))  # reason why its earlier batch is void


for _statement in _TRIGGER:
    event.listen(Unit.__table__, "after_create", DDL(_statement.replace("%", "%%")))  # type: ignore[no-untyped-call]
