"""Transaction intents, repeated contract calls and final events, for the market's features."""

from collections.abc import Collection
from datetime import timedelta
from typing import NotRequired, Unpack

import structlog
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from market.chain import repository
from market.chain.contracts.codec import Call, ChainEvent, encode_call, event_topic, to_json
from market.chain.errors import BadArguments
from market.chain.models import OPERATOR, ChainCursor, TxIntent
from market.domain.lifecycle import IntentStatus
from market.platform.db.base import utc_now
from market.platform.db.session import UnitOfWork, enqueue_after_commit

SEND_TASK = "chain.send"
RETRY_AFTER = timedelta(seconds=30)
_log = structlog.get_logger(__name__)


class IntentFields(Call):
    """Arguments of a transaction intent.

    - ``arguments`` are in the order of the Solidity function: ``int``, ``str`` (addresses, 0x hex), ``bytes``,
      ``bool``, lists, and structs as mappings by field name.
    - ``amount`` is the wei of ZEN that the call pays out or can burn by the sender's authority; default: 0. The hot
      key's limits count it.
    - ``account`` of the market sends the call; default: the operator.
    """

    key: str
    kind: str
    subject: str
    amount: NotRequired[int]
    account: NotRequired[str]


def queue_intent(session: Session, **fields: Unpack[IntentFields]) -> TxIntent:
    """Queue a call of ``contract.function``; the same ``key`` returns the existing intent.

    The sender simulates the call against the latest block. An intent that depends on another one must therefore wait
    until that one is final. The handler of ``kind`` runs in the transaction that records success or failure.

    Raises:
        BadArguments: the call does not match the contract's interface, or the key belongs to another call.
    """
    new = new_intent(session, **fields)
    names = ("key", "kind", "account", "subject", "contract", "function", "arguments", "amount", "status")
    values = {name: getattr(new, name) for name in names}
    # The insertion waits for a concurrent one of the same key, so the row exists afterwards.
    session.execute(insert(TxIntent).values(values).on_conflict_do_nothing(index_elements=[TxIntent.key]))
    intent = session.scalars(select(TxIntent).where(TxIntent.key == new.key)).one()
    if (intent.contract, intent.function, intent.arguments) != (new.contract, new.function, new.arguments):
        raise BadArguments(f"intent {new.key!r} belongs to another call")
    return intent


def new_intent(unit: UnitOfWork, *, fits: bool = False, **fields: Unpack[IntentFields]) -> TxIntent:
    """Return the row of an intent, for a caller that inserts it together with its own.

    Args:
        fits: skip the check that the call matches the contract's interface.

    Raises:
        BadArguments: the call does not match the contract's interface.
    """
    stored = [to_json(argument) for argument in fields["arguments"]]
    if not fits:
        encode_call(fields["contract"], fields["function"], stored)
    enqueue_after_commit(unit, SEND_TASK)
    fields.setdefault("amount", 0)
    fields.setdefault("account", OPERATOR)
    return TxIntent(**{**fields, "arguments": stored}, status=IntentStatus.QUEUED)


def intent_by_key(session: Session, key: str) -> TxIntent | None:
    return session.scalar(select(TxIntent).where(TxIntent.key == key))


def intents_about(session: Session, subject: str) -> list[TxIntent]:
    """Return all intents of a subject, oldest first."""
    return list(session.scalars(select(TxIntent).where(TxIntent.subject == subject).order_by(TxIntent.id)))


def newest_attempt(session: Session, subject: str, key: str) -> TxIntent | None:
    """Return the newest intent of a subject with a key ``key:0``, ``key:1`` and so on."""
    attempts = (TxIntent.subject == subject, TxIntent.key.startswith(f"{key}:", autoescape=True))
    return session.scalar(select(TxIntent).where(*attempts).order_by(TxIntent.id.desc()).limit(1))


def should_retry(session: Session, *, key: str, subject: str) -> bool:
    """Return True if :func:`request_call` would queue such a call now."""
    made = newest_attempt(session, subject, key)
    return made is None or (made.status == IntentStatus.REVERTED and utc_now() >= made.updated_at + RETRY_AFTER)


def request_call(session: Session, **fields: Unpack[IntentFields]) -> None:
    """Queue the call unless it is queued, sent or successful. A refused call is queued again.

    ``key`` identifies the call; the key of each attempt is derived from it.
    """
    key, subject = fields["key"], fields["subject"]
    if not should_retry(session, key=key, subject=subject):
        return
    attempt = 0
    if (made := newest_attempt(session, subject, key)) is not None:
        _log.error("chain_call_retried", key=made.key, reason=made.reason, detail=made.detail)
        attempt = int(made.key.removeprefix(f"{key}:")) + 1
    fields["key"] = f"{key}:{attempt}"
    queue_intent(session, **fields)


def final_events(session: Session, topic: str) -> list[ChainEvent]:
    """Return the final events with the indexed ``topic`` (job id, evidence digest), in order."""
    return repository.final_events(session, topic)


def final_events_named(session: Session, contract: str, event: str) -> list[ChainEvent]:
    """Return all final events of one kind, in order; for rare kinds."""
    return final_events(session, event_topic(contract, event))


def newest_final_events(session: Session, contract: str, event: str, limit: int) -> list[ChainEvent]:
    """Return the newest final events of one kind, newest first."""
    return repository.newest_final_events(session, event_topic(contract, event), limit)


def final_events_of_kind(session: Session, contract: str, event: str, topics: Collection[str]) -> list[ChainEvent]:
    """Return all final events of one kind with any of the indexed ``topics``, in order."""
    return repository.final_events_with(session, event_topic(contract, event), topics)


def waiting_intents(session: Session) -> dict[str, int]:
    """Return the number of blocked queued intents by reason, such as a limit of the hot key."""
    return repository.waiting_intents(session)


def indexed_head(session: Session) -> int | None:
    return session.scalar(select(ChainCursor.head_number))


def final_block(session: Session) -> int:
    """Return the number of the newest block with handled events; -1 before the first."""
    found = finalised_cursor(session)
    return -1 if found is None else found[0]


def finalised_cursor(session: Session) -> tuple[int, str] | None:
    """Return (number, hash) of the newest block with handled events; None before the first."""
    row = session.execute(select(ChainCursor.finalised_number, ChainCursor.finalised_hash)).one_or_none()
    return None if row is None else (row[0], row[1])
