"""Settling a job: publish its record, post the batch that pays its verified units, and read back what the chain did.

Every job ends here, whatever became of it. Nothing is paid that is not verified, nothing is settled while a unit is
undecided, and the contract refuses a second settlement. Providers claim their pay themselves, by proof, once the
batch's challenge period is over (:mod:`market.settlement.claims`).
"""

from typing import cast

import structlog
from sqlalchemy.orm import Session

from market.chain.bindings import JobEscrow, JobEscrowJobLine
from market.chain.contracts import ChainEvent
from market.chain.models import TxIntent
from market.chain.service import intent_by_key, queue_intent
from market.db.base import from_unix
from market.db.session import Database
from market.domain.lifecycle import IntentStatus
from market.domain.network import NetworkParameters
from market.events.service import emit
from market.jobs import service as jobs
from market.settlement import claims
from market.settlement.record import build_record
from market.storage.service import Storage
from zoo_protocol.cid import digest_of
from zoo_protocol.hashing import to_hex
from zoo_protocol.record import MAX_RECORD_BYTES
from zoo_protocol.settlement import build_batch

_log = structlog.get_logger(__name__)


def settle(database: Database, storage: Storage, network: NetworkParameters, job_id: str) -> None:
    """Queue the settlement of a job that is due for it; otherwise, or when it is queued already, do nothing.

    Raises:
        StorageError: the record could not be published; nothing was queued, so it can be tried again.
    """
    with database.transaction() as session:
        job = jobs.start_settling(session, job_id)
        if job is None or intent_by_key(session, _key(job_id)) is not None:
            return
        record = build_record(session, network, job)
    blob = storage.put(record.to_bytes(), max_bytes=MAX_RECORD_BYTES)
    with database.transaction() as session:
        # Decided units never change, so the record still holds; another worker's identical one finds the intent there.
        if jobs.start_settling(session, job_id) is None or intent_by_key(session, _key(job_id)) is not None:
            return
        jobs.set_record(session, job_id, blob.cid)
        # A job that was never funded is refused by the contract, whatever its fee.
        batch = build_batch(record, to_hex(digest_of(blob.cid)), job.fee_bps or 0)
        if batch.claims:
            claims.remember(session, job_id, batch)
        lines = [cast(JobEscrowJobLine, line.as_argument()) for line in batch.lines]
        queue_intent(
            session,
            key=_key(job_id),
            kind="settle",
            subject=job_id,
            **JobEscrow.settle(batch.claims_root, batch.units_root, lines),
            amount=sum(claim.amount for claim in batch.claims),
        )


def on_job_settled(session: Session, event: ChainEvent) -> None:
    """The settlement is final: note what the contract paid and end the job."""
    _finish(session, event, paid=event.args["paid"], fee=event.args["fee"], refund=event.args["refund"])


def on_job_refunded(session: Session, event: ChainEvent) -> None:
    """The payer took the whole escrow back after the published delay; nothing is left to settle."""
    _finish(session, event, paid=0, fee=0, refund=event.args["amount"])


def on_settlement_intent(session: Session, intent: TxIntent) -> None:
    """Handler of ``settle`` intents. One that the contract refused leaves its job in settling: somebody must look.

    A settlement that succeeded is acted on by its event.
    """
    if intent.status != IntentStatus.REVERTED:
        return
    _log.error("settlement refused by the contract", job=intent.subject, reason=intent.reason, detail=intent.detail)
    emit(session, intent.subject, "settlement", {"state": "refused", "reason": intent.reason})


def _finish(session: Session, event: ChainEvent, *, paid: int, fee: int, refund: int) -> None:
    job_id = event.args["jobId"]
    at = from_unix(event.timestamp)
    if jobs.finish_settlement(session, job_id, paid_wei=paid, fee_wei=fee, refund_wei=refund, tx=event.tx_hash, at=at):
        amounts: dict[str, object] = {"paid_wei": str(paid), "fee_wei": str(fee), "refund_wei": str(refund)}
        emit(session, job_id, "settlement", {"state": "final", "tx": event.tx_hash, **amounts})


def _key(job_id: str) -> str:
    return f"settle:{job_id}"
