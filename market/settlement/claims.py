"""What providers can claim from settled batches, and the collection of the treasury's fees.

The market only keeps the proofs and says when they are good: the claim is a transaction of the provider's own.
"""

from collections.abc import Callable

import structlog
from sqlalchemy.orm import Session

from market.chain.bindings import JobEscrow
from market.chain.contracts import ChainEvent
from market.chain.models import TxIntent
from market.chain.service import queue_intent
from market.db.base import from_unix, utc_now
from market.db.session import Database
from market.domain.lifecycle import IntentStatus
from market.events.service import emit
from market.jobs import service as jobs
from market.settlement import repository
from market.settlement.models import SettlementBatch, SettlementClaim
from zoo_protocol.settlement import Batch

_log = structlog.get_logger(__name__)

VETOED = "settlement_vetoed"
_BATCHES_A_COLLECTION = 50


def remember(session: Session, job_id: str, batch: Batch) -> None:
    """Keep the proofs of a batch that is about to be posted."""
    session.add(SettlementBatch(job_id=job_id, root=batch.root))
    session.flush()
    session.add_all(
        SettlementClaim(job_id=job_id, provider=claim.provider, amount_wei=claim.amount, proof=claim.proof)
        for claim in batch.claims
    )


def claims_of(
    session: Session, provider: str, *, claimed: bool, after_batch: int, limit: int
) -> list[tuple[SettlementBatch, SettlementClaim]]:
    """A provider's claims, by batch: those that it took already, or those that it did not."""
    return repository.claims_of(session, provider, claimed=claimed, after_batch=after_batch, limit=limit)


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
        key = f"collect_fees:{ids[0]}:{ids[-1]}:{len(ids)}:{now}"
        for batch in due:
            batch.fees_key = key
        queue_intent(
            session,
            key=key,
            kind="collect_fees",
            subject=key,
            **JobEscrow.collectFees([batch.root for batch in due]),
        )


def on_fees_intent(session: Session, intent: TxIntent) -> None:
    """Handler of ``collect_fees`` intents: a collection that the contract refused is due again."""
    if intent.status == IntentStatus.REVERTED:
        _log.error("collection of fees refused by the contract", intent=intent.key, detail=intent.detail)
        repository.forget_collection(session, intent.subject)


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


def on_batch_vetoed(session: Session, event: ChainEvent) -> None:
    """A guardian voided the batch. Its job's escrow is back; what is settled next is for an admin to decide."""
    batch = repository.batch_by_id(session, event.args["batchId"])
    if batch is None:
        return
    batch.vetoed = True
    _log.error("settlement vetoed by a guardian", job=batch.job_id, batch=batch.batch_id, tx=event.tx_hash)
    jobs.reopen_settlement(session, batch.job_id, VETOED)
    emit(session, batch.job_id, "settlement", {"state": "vetoed", "tx": event.tx_hash})
