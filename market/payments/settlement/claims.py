"""What providers can claim from settled batches, and the collection of the treasury's fees.

The market only keeps the proofs and says when they are good: the claim is a transaction of the provider's own.
"""

from collections.abc import Callable
from uuid import uuid4

import structlog
from sqlalchemy.orm import Session

from market.chain.contracts.bindings import JobEscrow
from market.chain.contracts.codec import ChainEvent
from market.chain.models import TxIntent
from market.chain.service import queue_intent
from market.domain.lifecycle import IntentStatus
from market.payments.settlement import repository
from market.payments.settlement.models import SettlementBatch, SettlementClaim
from market.platform.db.base import from_unix, utc_now
from market.platform.db.session import Database

_log = structlog.get_logger(__name__)


_BATCHES_A_COLLECTION = 50


def claims_of(
    session: Session, provider: str, *, claimed: bool, after_batch: int, limit: int
) -> list[tuple[SettlementBatch, SettlementClaim]]:
    """A provider's claims, by batch: those that it took already, or those that it did not."""
    return repository.claims_of(session, provider, claimed=claimed, after_batch=after_batch, limit=limit)


def claimable_at(session: Session, batch_id: int) -> int | None:
    """From when on a batch's claims are open, Unix seconds; None: it is not known, or was vetoed."""
    batch = repository.batch_by_id(session, batch_id)
    if batch is None or batch.claimable_at is None or batch.void_reason is not None:
        return None
    return int(batch.claimable_at.timestamp())


def collect_fees(database: Database, chain_time: Callable[[], int]) -> None:
    """Ask for the fees of the batches whose challenge period is over.

    Args:
        chain_time: gives the Unix time of the latest block, by which the contract judges; asked only if it matters.
    """
    with database.transaction() as session:
        if not repository.uncollected(session, utc_now(), 1):
            return
    now = chain_time()
    with database.transaction() as session:
        due = repository.uncollected(session, from_unix(now), _BATCHES_A_COLLECTION)
        if not due:
            return
        ids = [batch.batch_id for batch in due]
        # a collection of its own each time: a batch can be due again, also within the same second of the chain
        key = f"collect_fees:{ids[0]}:{ids[-1]}:{uuid4().hex}"
        for batch in due:
            batch.fees_key = key
        queue_intent(
            session,
            key=key,
            kind="collect_fees",
            subject=key,
            **JobEscrow.collectFees([batch.root for batch in due if batch.root is not None]),
        )


def on_fees_intent(session: Session, intent: TxIntent) -> None:
    """Handler of ``collect_fees`` intents: a collection that the contract refused is due again."""
    if intent.status == IntentStatus.REVERTED:
        _log.error("collection of fees refused by the contract", intent=intent.key, detail=intent.detail)
        repository.forget_collection(session, intent.subject)


def on_unit_restored(session: Session, event: ChainEvent) -> None:
    """A unit's fee is in its batch again, and is to be collected even if the batch's other fees were before."""
    repository.collect_again(session, event.args["batchId"])


def on_batch_posted(session: Session, event: ChainEvent) -> None:
    """The batch is final: its claims open at ``claimableAt``."""
    batch = repository.batch_by_root(session, event.args["root"])
    if batch is None:
        _log.error("a batch that this market did not make", batch=event.args["batchId"], tx=event.tx_hash)
        return
    batch.batch_id = event.args["batchId"]
    batch.claimable_at = from_unix(event.args["claimableAt"])


def on_claimed(session: Session, event: ChainEvent) -> None:
    """A provider took its pay."""
    repository.note_claim(session, event.args["batchId"], event.args["provider"], event.tx_hash)
