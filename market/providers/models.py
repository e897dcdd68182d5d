"""Tables of nodes: benchmarks, asks, record, stakes, attestations; the market's outages."""

from datetime import datetime

from sqlalchemy import BigInteger, Boolean, ForeignKey, Index, Integer, String, false, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from market.domain.nodes.reliability import NEWCOMER_BPS
from market.platform.db.base import Address, Base, Cid, CreatedAt, Hash32, UtcDateTime, Wei


class Provider(Base, CreatedAt):
    """Node that trains (kind provider) or replays (kind verifier). One per wallet."""

    __tablename__ = "providers"

    address: Mapped[str] = mapped_column(ForeignKey("accounts.address"), primary_key=True)
    kind: Mapped[str] = mapped_column(String(8))  # provider | verifier
    name: Mapped[str] = mapped_column(String(64))
    region: Mapped[str] = mapped_column(String(32))
    hardware: Mapped[dict[str, object]] = mapped_column(JSONB)
    environment_class: Mapped[str] = mapped_column(Hash32)
    status: Mapped[str] = mapped_column(String(16), index=True)  # lifecycle.ProviderStatus
    reason: Mapped[str | None] = mapped_column(String(64))
    tier_id: Mapped[int | None] = mapped_column(Integer)  # earned by benchmark; verifiers have none
    measured_mflops: Mapped[int | None] = mapped_column(BigInteger)  # in the last passed benchmark
    last_seen_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # Declared by the node for the spread of gangs; the round trip is its own measurement.
    site: Mapped[str | None] = mapped_column(String(64))
    asn: Mapped[int | None] = mapped_column(BigInteger)
    owner: Mapped[str | None] = mapped_column(String(64))
    round_trip_ms: Mapped[int | None] = mapped_column(Integer)
    reliability_bps: Mapped[int] = mapped_column(Integer, default=NEWCOMER_BPS, server_default=str(NEWCOMER_BPS))
    # Score that the last benchmark forgave; None at or above the demotion threshold.
    forgiven_bps: Mapped[int | None] = mapped_column(Integer)
    # When a verifier was last suspended for an outvoted replay (market.domain.verification.sampling.sanction_for).
    warned_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # Secret time of the next benchmark, and its deadline once the node has received it.
    rebenchmark_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    rebenchmark_by: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)
    # Begin of an on-chain dispute by the market; the node gets no new work during it.
    disputed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class Stake(Base):
    """Finalised projection of the staking contract for all wallets, registered or not."""

    __tablename__ = "stakes"

    address: Mapped[str] = mapped_column(Address, primary_key=True)
    stake_wei: Mapped[int] = mapped_column(Wei, default=0)
    unbonding_wei: Mapped[int] = mapped_column(Wei, default=0)  # not withdrawn yet, so slashable
    raised_at: Mapped[datetime | None] = mapped_column(UtcDateTime)  # last increase, by the chain's clock


class CommittedPeriod(Base):
    """Finalised projection of a period of uptime that a wallet committed to on chain."""

    __tablename__ = "committed_periods"

    address: Mapped[str] = mapped_column(Address, primary_key=True)
    starts_at: Mapped[datetime] = mapped_column(UtcDateTime, primary_key=True)
    ends_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class HeartbeatHour(Base):
    """Minutes of an hour with a heartbeat of a node. Rows last until their epoch is evaluated."""

    __tablename__ = "heartbeat_hours"

    hour: Mapped[int] = mapped_column(BigInteger, primary_key=True)  # since 1970
    provider: Mapped[str] = mapped_column(ForeignKey("providers.address"), primary_key=True)
    minutes: Mapped[int] = mapped_column(BigInteger)  # bit n: minute n
    stake_wei: Mapped[int] = mapped_column(Wei)  # lowest active stake in these minutes


class EvaluatedEpoch(Base, CreatedAt):
    """Epoch with evaluated uptime, and the basis of the evaluation."""

    __tablename__ = "judged_epochs"

    epoch: Mapped[int] = mapped_column(BigInteger, primary_key=True)  # market.domain.nodes.uptime.epoch_of
    usual_nodes: Mapped[int] = mapped_column(Integer)
    counted_minutes: Mapped[int] = mapped_column(Integer)


class ProviderEpoch(Base):
    """Record of a node in one epoch; its evaluation writes the minutes."""

    __tablename__ = "provider_epochs"
    __table_args__ = (
        Index("ix_provider_epochs_unreviewed", "provider", postgresql_where=text("unreviewed")),
        Index("ix_provider_epochs_provider_epoch", "provider", "epoch"),
    )

    epoch: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    provider: Mapped[str] = mapped_column(Address, primary_key=True)
    up_minutes: Mapped[int] = mapped_column(Integer, default=0)  # of the minutes that count
    counted_minutes: Mapped[int] = mapped_column(Integer, default=0)
    committed_up_minutes: Mapped[int] = mapped_column(Integer, default=0)
    committed_minutes: Mapped[int] = mapped_column(Integer, default=0)
    stake_minutes: Mapped[int] = mapped_column(Wei, default=0)  # wei of active stake, over all minutes seen
    served_bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    replays: Mapped[int] = mapped_column(Integer, default=0)
    replayed_wei: Mapped[int] = mapped_column(Wei, default=0, server_default="0")  # gross price of their segments
    verified: Mapped[int] = mapped_column(Integer, default=0)
    rejected: Mapped[int] = mapped_column(Integer, default=0)
    lost: Mapped[int] = mapped_column(Integer, default=0)
    slashes: Mapped[int] = mapped_column(Integer, default=0)
    refused: Mapped[int] = mapped_column(Integer, default=0, server_default="0")  # declined replays
    unreviewed: Mapped[bool] = mapped_column(Boolean, server_default=false())  # not yet in its provider's score


class DowntimePenalty(Base, CreatedAt):
    """Penalty for too little uptime in a committed epoch; amount and tx come from the chain."""

    __tablename__ = "downtime_penalties"

    provider: Mapped[str] = mapped_column(ForeignKey("providers.address"), primary_key=True)
    epoch: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    evidence: Mapped[str] = mapped_column(Hash32, unique=True)  # digest of the evidence document
    evidence_cid: Mapped[str] = mapped_column(Cid)
    amount_wei: Mapped[int | None] = mapped_column(Wei)
    tx: Mapped[str | None] = mapped_column(Hash32)


class Attestation(Base):
    """Finalised projection of the attestation registry."""

    __tablename__ = "attestations"

    address: Mapped[str] = mapped_column(Address, primary_key=True)
    measurement: Mapped[str] = mapped_column(Hash32, index=True)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    gpus: Mapped[list[str]] = mapped_column(ARRAY(String), default=list, server_default="{}")  # serials; see below


class AttestationChallenge(Base, CreatedAt):
    """Nonce for a TEE quote, with the result. One open challenge per wallet."""

    __tablename__ = "attestation_challenges"
    __table_args__ = (
        Index("uq_attestation_challenges_open", "provider", unique=True, postgresql_where=text("answered_at IS NULL")),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    provider: Mapped[str] = mapped_column(ForeignKey("providers.address"), index=True)
    nonce: Mapped[str] = mapped_column(Hash32)
    deadline_at: Mapped[datetime] = mapped_column(UtcDateTime)
    answered_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    measurement: Mapped[str | None] = mapped_column(Hash32)
    report: Mapped[str | None] = mapped_column(Hash32)  # SHA-256 of the evidence
    report_cid: Mapped[str | None] = mapped_column(Cid)
    attested_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    gpus: Mapped[list[str]] = mapped_column(ARRAY(String), default=list, server_default="{}")  # serials, by NVIDIA


class BenchmarkRun(Base, CreatedAt):
    """Hardware benchmark with its result. The market's clock measures the speed."""

    __tablename__ = "benchmark_runs"
    __table_args__ = (Index("ix_benchmark_runs_open", "provider", postgresql_where=text("answered_at IS NULL")),)

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    provider: Mapped[str] = mapped_column(ForeignKey("providers.address"), index=True)
    seed: Mapped[str] = mapped_column(Hash32)  # of the pool
    work: Mapped[dict[str, int]] = mapped_column(JSONB)  # training_gym.hardware.challenge.ProofParameters
    tier_id: Mapped[int] = mapped_column(Integer)
    deadline_at: Mapped[datetime] = mapped_column(UtcDateTime)  # of the pool, then of the timed work
    nonce: Mapped[str | None] = mapped_column(Hash32)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    commitment: Mapped[str | None] = mapped_column(Hash32)
    committed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    secret: Mapped[str | None] = mapped_column(Hash32)  # set after the commitment; selects the steps to open
    answered_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    answer_cid: Mapped[str | None] = mapped_column(Cid)
    passed: Mapped[bool | None]
    reason: Mapped[str | None] = mapped_column(String(64))
    flops_per_second: Mapped[int | None] = mapped_column(BigInteger)


class AskRow(Base, CreatedAt):
    """Signed ask of a provider (zoo_protocol.messages.Ask)."""

    __tablename__ = "asks"
    __table_args__ = (
        Index("uq_asks_open_provider", "provider", unique=True, postgresql_where=text("status = 'open'")),
    )

    id: Mapped[str] = mapped_column(Hash32, primary_key=True)  # EIP-712 struct hash: a replayed nonce is the same id
    provider: Mapped[str] = mapped_column(ForeignKey("providers.address"), index=True)
    tier_id: Mapped[int] = mapped_column(Integer)
    gpus: Mapped[int] = mapped_column(Integer)
    min_price_wei: Mapped[int] = mapped_column(Wei)
    valid_until: Mapped[datetime] = mapped_column(UtcDateTime)
    nonce: Mapped[int] = mapped_column(Wei)
    signature: Mapped[str] = mapped_column(String(132))
    status: Mapped[str] = mapped_column(String(16))  # open | replaced | cancelled | expired


class SignerNonce(Base, CreatedAt):
    """Order or ask nonce that a signer has used; a second use is refused."""

    __tablename__ = "signer_nonces"

    signer: Mapped[str] = mapped_column(Address, primary_key=True)
    nonce: Mapped[int] = mapped_column(Wei, primary_key=True)
    used_for: Mapped[str] = mapped_column(Hash32)


class ComponentHeartbeat(Base):
    """Time of the last heartbeat of a component (``market.providers.outages.service``)."""

    __tablename__ = "presences"

    part: Mapped[str] = mapped_column(String(8), primary_key=True)
    seen_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Outage(Base):
    """Outage of a component of the market."""

    __tablename__ = "outages"
    __table_args__ = (Index("ix_outages_ends_at", "ends_at"),)

    part: Mapped[str] = mapped_column(String(8), primary_key=True)
    starts_at: Mapped[datetime] = mapped_column(UtcDateTime, primary_key=True)
    ends_at: Mapped[datetime] = mapped_column(UtcDateTime)
