"""Tables of jobs: the order, its slots, units, leases and checkpoints."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    String,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from market.db.base import Address, Base, Cid, CreatedAt, Hash32, UtcDateTime, Wei


class Job(Base, CreatedAt):
    """A training job. Its id is the struct hash of the payer's signed order, here and on chain."""

    __tablename__ = "jobs"
    __table_args__ = (
        Index("ix_jobs_payer_created_at_id", "payer", "created_at", "id"),
        Index("ix_jobs_unreleased", "id", postgresql_where=text("released_at IS NULL")),
    )

    id: Mapped[str] = mapped_column(Hash32, primary_key=True)
    payer: Mapped[str] = mapped_column(ForeignKey("accounts.address"))
    status: Mapped[str] = mapped_column(String(16), index=True)  # lifecycle.JobStatus
    reason: Mapped[str | None] = mapped_column(String(64))  # completed | expired | cancelled_by_payer | ...
    request: Mapped[dict[str, object]] = mapped_column(JSONB)  # the job as the user wrote it
    spec: Mapped[dict[str, Any]] = mapped_column(JSONB)  # training_gym.config.TrainingSpec.to_dict()
    spec_hash: Mapped[str] = mapped_column(Hash32)
    spec_cid: Mapped[str] = mapped_column(Cid)
    tier_id: Mapped[int] = mapped_column(Integer)
    nodes: Mapped[int] = mapped_column(Integer)
    rounds: Mapped[int] = mapped_column(Integer)
    segments: Mapped[int] = mapped_column(Integer)
    sampling_bps: Mapped[int] = mapped_column(Integer)  # lowest rate at which segments are drawn, signed with the order
    checkpoint_interval: Mapped[int] = mapped_column(Integer)
    redundancy: Mapped[int] = mapped_column(Integer)
    requirements: Mapped[dict[str, object]] = mapped_column(JSONB)
    # The signed order and permit, as relayed to the escrow contract.
    units_ordered: Mapped[int] = mapped_column(Integer)
    unit_weight_us: Mapped[int] = mapped_column(BigInteger)
    budget_wei: Mapped[int] = mapped_column(Wei)
    max_price_wei: Mapped[int] = mapped_column(Wei)
    wait_until: Mapped[datetime] = mapped_column(UtcDateTime)
    nonce: Mapped[int] = mapped_column(Wei)
    order_signature: Mapped[str] = mapped_column(String(132))
    organisation_id: Mapped[int | None] = mapped_column(ForeignKey("organisations.id"), index=True)
    # What its payer narrowed or asked for since; the signed order above stays as it is.
    amended_max_price_wei: Mapped[int | None] = mapped_column(Wei)
    amended_wait_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    cancelled_by: Mapped[str | None] = mapped_column(Address)  # asked for while the deposit was on its way
    paused_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    permit: Mapped[dict[str, object]] = mapped_column(JSONB)
    # What the chain said (finalised projections).
    escrowed_wei: Mapped[int] = mapped_column(Wei, default=0)
    fee_bps: Mapped[int | None] = mapped_column(Integer)
    paid_wei: Mapped[int | None] = mapped_column(Wei)
    fee_wei: Mapped[int | None] = mapped_column(Wei)
    refund_wei: Mapped[int | None] = mapped_column(Wei)
    open_tx: Mapped[str | None] = mapped_column(Hash32)
    settlement_tx: Mapped[str | None] = mapped_column(Hash32)
    # Matching and training.
    clearing_price_wei: Mapped[int | None] = mapped_column(Wei)
    auction_round_id: Mapped[int | None] = mapped_column(ForeignKey("auction_rounds.id"))
    environment_class: Mapped[str | None] = mapped_column(Hash32)  # fixed at matching; replays compare within it
    # Nodes of this book and class are held for it until then, so that its gang can gather (market.jobs.reservations).
    reserved_zone: Mapped[str | None] = mapped_column(String(32))
    reserved_class: Mapped[str | None] = mapped_column(Hash32)
    reserved_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    current_round: Mapped[int] = mapped_column(Integer, default=0)
    round_started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    record_cid: Mapped[str | None] = mapped_column(Cid)  # the job record whose digest is in the settlement
    funded_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    matched_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    first_step_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    trained_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    settled_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    released_at: Mapped[datetime | None] = mapped_column(UtcDateTime)  # market.jobs.retention has done its work

    @property
    def price_cap_wei(self) -> int:
        """Highest price in wei per GPU-hour that its payer takes now."""
        return self.max_price_wei if self.amended_max_price_wei is None else self.amended_max_price_wei

    @property
    def expires_at(self) -> datetime:
        """Until when its payer waits for a match."""
        return self.amended_wait_until or self.wait_until


class Slot(Base):
    """One worker place of a running job, and who holds it now (None: vacant, to be filled from the book).

    A node holds at most one slot at a time, of all jobs; slots are freed when their job stops training.
    """

    __tablename__ = "slots"
    __table_args__ = (Index("uq_slots_provider", "provider", unique=True),)

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    slot: Mapped[int] = mapped_column(Integer, primary_key=True)
    provider: Mapped[str | None] = mapped_column(Address)
    # The unit whose slot state the next one goes on from (None: a fresh one).
    state_unit_id: Mapped[int | None] = mapped_column(ForeignKey("units.id"))


class Unit(Base, CreatedAt):
    """One slot's one outer round, computed by one provider: what is committed, checked and paid."""

    __tablename__ = "units"
    __table_args__ = (
        # A lost or rejected unit may be done over by somebody else while its round is open.
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
    # What it starts from: a slot state (None: a fresh one), to which a payload may be added back.
    start_slot_state_cid: Mapped[str | None] = mapped_column(Cid)
    start_slot_state_digest: Mapped[str | None] = mapped_column(Hash32)
    start_restored_payload_cid: Mapped[str | None] = mapped_column(Cid)
    # The slot's payload that the checkpoint does not have yet, and that its parameters are moved by (None: none).
    start_eager_payload_cid: Mapped[str | None] = mapped_column(Cid)
    trace_root: Mapped[str | None] = mapped_column(Hash32)
    payload_hash: Mapped[str | None] = mapped_column(Hash32)
    commitment_signature: Mapped[str | None] = mapped_column(String(132))
    leaves: Mapped[list[str] | None] = mapped_column(JSONB)  # private until the unit is decided
    salt: Mapped[str | None] = mapped_column(Hash32)
    payload_cid: Mapped[str | None] = mapped_column(Cid)
    payload_sha256: Mapped[str | None] = mapped_column(Hash32)
    top_k: Mapped[int | None] = mapped_column(Integer)  # entries that it sends per chunk; None: the job's
    # What it hands on, as its node declared it: the file, which stays there, and the digest that the last leaf binds.
    slot_state_cid: Mapped[str | None] = mapped_column(Cid)
    slot_state_digest: Mapped[str | None] = mapped_column(Hash32)
    slot_state_public: Mapped[bool] = mapped_column(default=False, server_default="false")  # on storage, and checked
    slot_state_round: Mapped[int | None] = mapped_column(Integer)  # of the newest checkpoint to be kept that names it
    uploaded_bytes: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")  # as the market read them
    train_loss: Mapped[str | None] = mapped_column(String(32))  # decimal string, informative only
    included: Mapped[bool | None]  # in its round's aggregate, or a later one's if it was late; None: not decided
    # What is unusual about its payload beside the others' (training_gym.consistency); None: not examined.
    doubts: Mapped[list[str] | None] = mapped_column(JSONB)
    rounds_late: Mapped[int | None] = mapped_column(Integer)  # rounds closed between its own and its delivery
    exclusion_reason: Mapped[str | None] = mapped_column(String(64))
    # Its slot went on from what it left unsent, but what it sent was not used: a later unit's start gets that back.
    to_restore: Mapped[bool] = mapped_column(default=False, server_default="false")
    report: Mapped[dict[str, Any] | None] = mapped_column(JSONB)  # schemas.NodeReport: the node's own measurements
    window_id: Mapped[int | None] = mapped_column(ForeignKey("windows.id"), index=True)
    window_index: Mapped[int | None] = mapped_column(Integer)
    sampling_bps: Mapped[int | None] = mapped_column(Integer)
    # Drawn ones that no verifier of the job's class replayed: one of another passed them. None: not decided.
    tolerated_segments: Mapped[list[int] | None] = mapped_column(JSONB)
    committed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    uploaded_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    decided_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    dispute_id: Mapped[str | None] = mapped_column(Hash32)  # of the market's dispute of it, in the contract
    # The batch that pays it. A trigger (market.jobs.ddl) keeps a unit in its batch while that stands.
    settlement_id: Mapped[int | None] = mapped_column(ForeignKey("settlement_batches.id"), index=True)
    settlement_reason: Mapped[str | None] = mapped_column(String(64))  # why the batch that it was in is void


class Acknowledgement(Base, CreatedAt):
    """The market's signed promise for one unit's commitment, stored with it and given again unchanged."""

    __tablename__ = "acknowledgements"

    unit_id: Mapped[int] = mapped_column(ForeignKey("units.id"), primary_key=True)
    leaf: Mapped[str] = mapped_column(Hash32, unique=True)  # of the commitment; unitId in the Omissions contract
    include_by: Mapped[datetime] = mapped_column(UtcDateTime)  # a window with the leaf is committed by then
    signature: Mapped[str] = mapped_column(String(132))


class Lease(Base, CreatedAt):
    """Work addressed to one node. The token guards every later call: a stale holder's calls find nothing."""

    __tablename__ = "leases"
    __table_args__ = (
        Index("ix_leases_open_holder", "holder", postgresql_where=text("status IN ('offered','active')")),
        Index(
            "uq_leases_open_train",
            "unit_id",
            unique=True,
            postgresql_where=text("kind = 'train' AND status IN ('offered','active')"),
        ),
        Index("ix_leases_follow_checkpoint", "checkpoint_id", postgresql_where=text("kind = 'follow'")),
        Index("ix_leases_follow_holder", "holder", "created_at", postgresql_where=text("kind = 'follow'")),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    kind: Mapped[str] = mapped_column(String(8))  # train | reveal | replay | pin | publish | follow
    holder: Mapped[str] = mapped_column(Address)
    status: Mapped[str] = mapped_column(String(8), index=True)  # lifecycle.LeaseStatus
    reason: Mapped[str | None] = mapped_column(String(64))
    token: Mapped[str] = mapped_column(Hash32)
    task: Mapped[dict[str, Any]] = mapped_column(JSONB)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), index=True)
    unit_id: Mapped[int | None] = mapped_column(ForeignKey("units.id"), index=True)
    replay_id: Mapped[int | None] = mapped_column(ForeignKey("replays.id"))
    checkpoint_id: Mapped[int | None] = mapped_column(ForeignKey("checkpoints.id"))
    step: Mapped[int] = mapped_column(Integer, default=0)
    pulled_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


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
    file_cids: Mapped[list[str]] = mapped_column(JSONB)  # manifest and all it names, in the order of a pin proof
    validation_loss: Mapped[str | None] = mapped_column(String(32))  # decimal string, 6 places; None: not yet known


class AggregationLeaf(Base, CreatedAt):
    """One leaf of the tree that aggregates a job's round; rows last until the round is closed."""

    __tablename__ = "aggregation_leaves"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    round: Mapped[int] = mapped_column(Integer, primary_key=True)
    leaf: Mapped[int] = mapped_column(Integer, primary_key=True)
    seed: Mapped[str] = mapped_column(Hash32)  # of the sketches: stands for the payloads of all leaves of the plan
    parts: Mapped[list[dict[str, Any]]] = mapped_column(JSONB)  # market.jobs.parts.Part
    summary: Mapped[dict[str, Any] | None] = mapped_column(JSONB)  # training_gym.tree.Summary
    sum_cid: Mapped[str | None] = mapped_column(Cid)


class Pin(Base, CreatedAt):
    """A provider's proven copy of a checkpoint: it hashed a fresh nonce with every block."""

    __tablename__ = "pins"

    checkpoint_id: Mapped[int] = mapped_column(ForeignKey("checkpoints.id"), primary_key=True)
    provider: Mapped[str] = mapped_column(Address, primary_key=True)
    nonce: Mapped[str] = mapped_column(Hash32)
    proof: Mapped[str] = mapped_column(Hash32)


class StatePin(Base, CreatedAt):
    """A provider's proven copy of a published slot state, that which the unit handed on."""

    __tablename__ = "state_pins"

    unit_id: Mapped[int] = mapped_column(ForeignKey("units.id"), primary_key=True)
    provider: Mapped[str] = mapped_column(Address, primary_key=True)
    nonce: Mapped[str] = mapped_column(Hash32)
    proof: Mapped[str] = mapped_column(Hash32)


class Upload(Base):
    """A file of a unit that arrives in pieces: at most one for each purpose, gone once it was accepted or forgotten."""

    __tablename__ = "uploads"

    unit_id: Mapped[int] = mapped_column(ForeignKey("units.id"), primary_key=True)
    purpose: Mapped[str] = mapped_column(String(24), primary_key=True)  # market.jobs.uploads.Expected
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
