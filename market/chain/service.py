"""What the rest of the market asks of the chain: to make a call, exactly once."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from market.chain import repository
from market.chain.contracts.codec import ChainEvent, encode_call, event_topic, to_json
from market.chain.errors import BadArguments
from market.chain.models import OPERATOR, ChainCursor, TxIntent
from market.domain.lifecycle import IntentStatus
from market.platform.db.session import UnitOfWork, enqueue_after_commit

SEND_TASK = "chain.send"


def queue_intent(
    session: Session,
    *,
    key: str,
    kind: str,
    subject: str,
    contract: str,
    function: str,
    arguments: Sequence[Any],
    amount: int = 0,
    account: str = OPERATOR,
) -> TxIntent:
    """Ask for one call of ``contract.function``; the same ``key`` again returns the intent that is there.

    The call goes out once the unit of work has committed. It is simulated first against the latest block, so an intent
    that depends on another's effect must be queued only when that one is final. On success and on failure the handler
    registered for ``kind`` is told, in the transaction that records the outcome.

    Args:
        arguments: in the order of the Solidity function; ``int``, ``str`` (addresses, 0x hex), ``bytes``, ``bool``,
            lists, and structs as mappings by field name.
        amount: wei of ZEN that the call pays out, or can burn, on our word alone; the limits of the hot key count it.
        account: of the market's accounts, the one that makes the call.

    Raises:
        BadArguments: the call does not fit the contract's interface, or the key stands for another call.
    """
    new = new_intent(
        session,
        key=key,
        kind=kind,
        subject=subject,
        contract=contract,
        function=function,
        arguments=arguments,
        amount=amount,
        account=account,
    )
    names = ("key", "kind", "account", "subject", "contract", "function", "arguments", "amount", "status")
    values = {name: getattr(new, name) for name in names}
    # A concurrent holder of the key makes this wait for its commit, so that the row is there afterwards.
    session.execute(insert(TxIntent).values(values).on_conflict_do_nothing(index_elements=[TxIntent.key]))
    intent = session.scalars(select(TxIntent).where(TxIntent.key == key)).one()
    if (intent.contract, intent.function, intent.arguments) != (contract, function, new.arguments):
        raise BadArguments(f"intent {key!r} already stands for another call")
    return intent


def new_intent(
    unit: UnitOfWork,
    *,
    key: str,
    kind: str,
    subject: str,
    contract: str,
    function: str,
    arguments: Sequence[Any],
    amount: int = 0,
    account: str = OPERATOR,
    fits: bool = False,
) -> TxIntent:
    """The row of an intent, as :func:`queue_intent` writes it, for a caller that inserts it together with its own.

    Args:
        fits: the caller made sure that the call fits the contract's interface, so it is not encoded to find out.

    Raises:
        BadArguments: the call does not fit the contract's interface.
    """
    stored = [to_json(argument) for argument in arguments]
    if not fits:
        encode_call(contract, function, stored)
    enqueue_after_commit(unit, SEND_TASK)
    return TxIntent(
        key=key,
        kind=kind,
        account=account,
        subject=subject,
        contract=contract,
        function=function,
        arguments=stored,
        amount=amount,
        status=IntentStatus.QUEUED,
    )


def intent_by_key(session: Session, key: str) -> TxIntent | None:
    """The intent queued under ``key``."""
    return session.scalar(select(TxIntent).where(TxIntent.key == key))


def intents_about(session: Session, subject: str) -> list[TxIntent]:
    """All intents about one subject, oldest first."""
    return list(session.scalars(select(TxIntent).where(TxIntent.subject == subject).order_by(TxIntent.id)))


def newest_attempt(session: Session, subject: str, key: str) -> TxIntent | None:
    """The newest of the intents about a subject that were queued under ``key:0``, ``key:1`` and so on."""
    attempts = (TxIntent.subject == subject, TxIntent.key.startswith(f"{key}:", autoescape=True))
    return session.scalar(select(TxIntent).where(*attempts).order_by(TxIntent.id.desc()).limit(1))


def final_events(session: Session, topic: str) -> list[ChainEvent]:
    """Final events of our contracts that have ``topic`` (a job id, an evidence digest) indexed, in order."""
    return repository.final_events(session, topic)


def final_events_named(session: Session, contract: str, event: str) -> list[ChainEvent]:
    """All final events of one kind, in order: for such as are rare."""
    return repository.final_events(session, event_topic(contract, event))


def waiting_intents(session: Session) -> dict[str, int]:
    """How many queued intents wait for each reason, such as a limit of the hot key."""
    return repository.waiting_intents(session)


def indexed_head(session: Session) -> int | None:
    """The newest ingested block; None before the first one."""
    return session.scalar(select(ChainCursor.head_number))


def finalised_cursor(session: Session) -> tuple[int, str] | None:
    """(number, hash) of the newest block whose events have been acted upon; None before the first one."""
    row = session.execute(select(ChainCursor.finalised_number, ChainCursor.finalised_hash)).one_or_none()
    return None if row is None else (row[0], row[1])
