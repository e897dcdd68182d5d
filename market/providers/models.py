"""Tables of providers and verifiers, their benchmarks, asks, uptime and record, and what the chain says of stakes."""

from datetime import datetime

from sqlalchemy import BigInteger, Boolean, ForeignKey, Index, Integer, String, false, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from market.domain.nodes.reliability import NEWCOMER_BPS
from market.platform.db.base import Address, Base, Cid, CreatedAt, Hash32, UtcDateTime, Wei


class Provider(Base, CreatedAt):
    """A node that trains (kind provider) or replays (kind verifier). One per wallet."""

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
    last_seen_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # What it may share the fate of others by, as it declares, and its own measurement of the way to the market.
    site: Mapped[str | None] = mapped_column(String(64))
    asn: Mapped[int | None] = mapped_column(BigInteger)
    owner: Mapped[str | None] = mapped_column(String(64))
    round_trip_ms: Mapped[int | None] = mapped_column(Integer)
    reliability_bps: Mapped[int] = mapped_column(Integer, default=NEWCOMER_BPS, server_default=str(NEWCOMER_BPS))
    # The score at the last benchmark, which that benchmark forgave; None once the score needs no forgiving.
    forgiven_bps: Mapped[int | None] = mapped_column(Integer)
    # When a verifier was last suspended for an outvoted replay (market.domain.verification.sampling.sanction_for).
    warned_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # When it will be asked to show its hardware again, which it is not told; and by when it has to, once it was told.
    rebenchmark_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    rebenchmark_by: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)
    # Since when the market disputes a unit of its on chain; until that has ended it gets no new work.
    disputed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class Stake(Base):
    """Finalised projection of the staking contract, of any wallet: one may stake before it registers."""

    __tablename__ = "stakes"

    address: Mapped[str] = mapped_column(Address, primary_key=True)
    stake_wei: Mapped[int] = mapped_column(Wei, default=0)
    unbonding_wei: Mapped[int] = mapped_column(Wei, default=0)  # asked back, not yet withdrawn: still at risk
    raised_at: Mapped[datetime | None] = mapped_column(UtcDateTime)  # by the chain's clock, when it last grew


class CommittedPeriod(Base):
    """Finalised projection: a time through which a wallet promised on chain to be up."""

    __tablename__ = "committed_periods"

    address: Mapped[str] = mapped_column(Address, primary_key=True)
    starts_at: Mapped[datetime] = mapped_column(UtcDateTime, primary_key=True)
    ends_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class HeartbeatHour(Base):
    """In which minutes of an hour a node was seen. Rows last until their epoch has been judged."""

    __tablename__ = "heartbeat_hours"

    hour: Mapped[int] = mapped_column(BigInteger, primary_key=True)  # since 1970
    provider: Mapped[str] = mapped_column(ForeignKey("providers.address"), primary_key=True)
    minutes: Mapped[int] = mapped_column(BigInteger)  # bit n: minute n
    stake_wei: Mapped[int] = mapped_column(Wei)  # the least that it had at stake for active work in these minutes


class JudgedEpoch(Base, CreatedAt):
    """An epoch whose uptime has been judged, and what it was measured by."""

    __tablename__ = "judged_epochs"

    epoch: Mapped[int] = mapped_column(BigInteger, primary_key=True)  # market.domain.nodes.uptime.epoch_of
    usual_nodes: Mapped[int] = mapped_column(Integer)
    counted_minutes: Mapped[int] = mapped_column(Integer)


class ProviderEpoch(Base):
    """What one node did in one epoch. The minutes are written when the epoch is judged, the rest as it happens."""

    __tablename__ = "provider_epochs"
    __table_args__ = (Index("ix_provider_epochs_unreviewed", "provider", postgresql_where=text("unreviewed")),)

    epoch: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    provider: Mapped[str] = mapped_column(Address, primary_key=True)
    up_minutes: Mapped[int] = mapped_column(Integer, default=0)  # of those that count
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
    refused: Mapped[int] = mapped_column(Integer, default=0, server_default="0")  # replays that it gave back
    unreviewed: Mapped[bool] = mapped_column(Boolean, server_default=false())  # not yet in its provider's score


class DowntimePenalty(Base, CreatedAt):
    """A node was up for less of an epoch than it had committed to; amount and tx are what the chain said."""

    __tablename__ = "downtime_penalties"

    provider: Mapped[str] = mapped_column(ForeignKey("providers.address"), primary_key=True)
    epoch: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    evidence: Mapped[str] = mapped_column(Hash32, unique=True)  # digest of the evidence document
    evidence_cid: Mapped[str] = mapped_column(Cid)
    amount_wei: Mapped[int | None] = mapped_column(Wei)
    tx: Mapped[str | None] = mapped_column(Hash32)


class Attestation(Base):
    """Finalised projection of the attestation registry: what is attested of a wallet, and until when."""

    __tablename__ = "attestations"

    address: Mapped[str] = mapped_column(Address, primary_key=True)
    measurement: Mapped[str] = mapped_column(Hash32, index=True)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    gpus: Mapped[list[str]] = mapped_column(ARRAY(String), default=list, server_default="{}")  # serials; see below


class AttestationChallenge(Base, CreatedAt):
    """A nonce that a quote must be bound to, and what came of it. One open challenge per wallet."""

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
    """One proof-of-work challenge and what came of it. Its speed is measured by the market's clock."""

    __tablename__ = "benchmark_runs"
    __table_args__ = (Index("ix_benchmark_runs_open", "provider", postgresql_where=text("answered_at IS NULL")),)

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    provider: Mapped[str] = mapped_column(ForeignKey("providers.address"), index=True)
    seed: Mapped[str] = mapped_column(Hash32)  # of the pool
    work: Mapped[dict[str, int]] = mapped_column(JSONB)  # training_gym.hardware.challenge.ProofParameters
    tier_id: Mapped[int] = mapped_column(Integer)
    deadline_at: Mapped[datetime] = mapped_column(UtcDateTime)  # of the pool; once the work has begun, of the work
    nonce: Mapped[str | None] = mapped_column(Hash32)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    commitment: Mapped[str | None] = mapped_column(Hash32)
    committed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    secret: Mapped[str | None] = mapped_column(Hash32)  # drawn after the commitment: what is opened
    answered_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    answer_cid: Mapped[str | None] = mapped_column(Cid)
    passed: Mapped[bool | None]
    reason: Mapped[str | None] = mapped_column(String(64))
    flops_per_second: Mapped[int | None] = mapped_column(BigInteger)


class AskRow(Base, CreatedAt):
    """A provider's standing, signed offer (zoo_protocol.messages.Ask)."""

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
    """Every order or ask nonce that a signer has used; a second use is refused."""

    __tablename__ = "signer_nonces"

    signer: Mapped[str] = mapped_column(Address, primary_key=True)
    nonce: Mapped[int] = mapped_column(Wei, primary_key=True)
    used_for: Mapped[str] = mapped_column(Hash32)
