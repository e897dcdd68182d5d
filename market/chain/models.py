"""Tables of ingested blocks and of transaction intents. One database serves one chain."""

from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Identity, Index, LargeBinary, String, Text, func, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column, relationship

from market.chain.contracts.codec import Json
from market.domain.lifecycle import IntentStatus
from market.platform.db.base import Address, Base, CreatedAt, Hash32, UtcDateTime, Wei

OPERATOR = "operator"
"""Account of the market with roles in the contracts, independent of its key. Challenger accounts are named by their
addresses, because only the account that opened a dispute can continue it."""

_STATUSES = ", ".join(f"'{status}'" for status in IntentStatus)


class ChainBlock(Base):
    """Ingested block. Final blocks without logs are dropped; orphans with logs stay."""

    __tablename__ = "chain_blocks"
    __table_args__ = (
        Index("uq_chain_blocks_canonical_number", "number", unique=True, postgresql_where=text("canonical")),
    )

    hash: Mapped[str] = mapped_column(Hash32, primary_key=True)
    number: Mapped[int] = mapped_column(BigInteger)
    parent_hash: Mapped[str] = mapped_column(Hash32)
    timestamp: Mapped[int] = mapped_column(BigInteger)  # Unix seconds
    canonical: Mapped[bool]


class ChainLog(Base):
    """Undecoded log of a contract of the deployment."""

    __tablename__ = "chain_logs"
    __table_args__ = (
        Index(
            "ix_chain_logs_topics", "topics", postgresql_using="gin", postgresql_ops={"topics": "jsonb_path_ops"}
        ),  # the events of one job, slash or batch (repository.final_events)
    )

    block_hash: Mapped[str] = mapped_column(ForeignKey(ChainBlock.hash), primary_key=True)
    log_index: Mapped[int] = mapped_column(primary_key=True)
    tx_hash: Mapped[str] = mapped_column(Hash32, index=True)
    contract: Mapped[str] = mapped_column(String(32))
    topics: Mapped[list[str]] = mapped_column(JSONB)
    data: Mapped[bytes] = mapped_column(LargeBinary)


class ChainCursor(Base):
    """Newest ingested block (head) and newest block with handled events (finalised). One row."""

    __tablename__ = "chain_cursor"
    __table_args__ = (CheckConstraint("id = 1", name="single"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, default=1)
    head_number: Mapped[int] = mapped_column(BigInteger)
    head_hash: Mapped[str] = mapped_column(Hash32)
    finalised_number: Mapped[int] = mapped_column(BigInteger)
    finalised_hash: Mapped[str] = mapped_column(Hash32)


class TxIntent(Base, CreatedAt):
    """Transaction intent: a contract call to make exactly once.

    - ``key`` makes queueing idempotent; ``kind`` selects the handler of the outcome.
    - ``subject`` is the id of a job, window or other row.
    - ``reason`` (stable code) and ``detail`` (a sentence) explain ``status``.
    - Without ``contract`` it is a transfer of 0 to the signer, which fills a gap in its nonces.
    """

    __tablename__ = "tx_intents"
    __table_args__ = (
        # Two intents never have the same nonce. A displaced intent loses its nonce.
        Index("uq_tx_intents_nonce", "signer", "nonce", unique=True, postgresql_where=text("nonce IS NOT NULL")),
        Index("ix_tx_intents_open", "status", "id", postgresql_where=text("status NOT IN ('final', 'reverted')")),
        CheckConstraint(f"status IN ({_STATUSES})", name="status"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    key: Mapped[str] = mapped_column(String(200), unique=True)
    kind: Mapped[str] = mapped_column(String(64))
    account: Mapped[str] = mapped_column(String(42), default=OPERATOR, server_default=OPERATOR)  # sender
    subject: Mapped[str] = mapped_column(String(128), index=True)
    contract: Mapped[str | None] = mapped_column(String(32))
    function: Mapped[str | None] = mapped_column(String(64))
    arguments: Mapped[list[Json]] = mapped_column(JSONB)  # integers as decimal strings
    amount: Mapped[int] = mapped_column(Wei, server_default="0")  # ZEN that it moves by the operator's authority
    status: Mapped[str] = mapped_column(String(16), default=IntentStatus.QUEUED)
    reason: Mapped[str | None] = mapped_column(String(64))
    detail: Mapped[str | None] = mapped_column(Text)
    signer: Mapped[str | None] = mapped_column(Address)
    nonce: Mapped[int | None] = mapped_column(BigInteger)
    tx_hash: Mapped[str | None] = mapped_column(Hash32)  # of the attempt that was mined
    block_number: Mapped[int | None] = mapped_column(BigInteger)
    block_hash: Mapped[str | None] = mapped_column(Hash32)
    updated_at: Mapped[datetime] = mapped_column(
        UtcDateTime, server_default=func.clock_timestamp(), onupdate=func.clock_timestamp()
    )

    attempts: Mapped[list["TxAttempt"]] = relationship(order_by="TxAttempt.id", lazy="selectin")


class TxAttempt(Base, CreatedAt):
    """Signed transaction of an intent. The bytes are stored before any node gets them."""

    __tablename__ = "tx_attempts"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    intent_id: Mapped[int] = mapped_column(ForeignKey(TxIntent.id), index=True)
    signer: Mapped[str] = mapped_column(Address)
    nonce: Mapped[int] = mapped_column(BigInteger)
    hash: Mapped[str] = mapped_column(Hash32, unique=True)
    raw: Mapped[bytes] = mapped_column(LargeBinary)
    gas_limit: Mapped[int] = mapped_column(BigInteger)
    max_fee: Mapped[int] = mapped_column(Wei)  # per gas
    priority_fee: Mapped[int] = mapped_column(Wei)  # per gas
    live: Mapped[bool] = mapped_column(default=True)  # False once it can never be mined
    first_sent_block: Mapped[int | None] = mapped_column(BigInteger)
    last_sent_block: Mapped[int | None] = mapped_column(BigInteger)
    last_error: Mapped[str | None] = mapped_column(Text)

    __table_args__ = (
        Index("ix_tx_attempts_signer_nonce", "signer", "nonce"),
        Index("ix_tx_attempts_signer_created_at", "signer", "created_at"),
    )
