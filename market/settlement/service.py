"""Settling a job: publish its record, pay its verified units, refund the rest, and read back what the chain did.

Every job ends here, whatever became of it. Nothing is paid that is not verified, nothing is settled while a unit is
undecided, and the contract refuses a second settlement.
"""

from collections import Counter
from typing import Any

import structlog
from sqlalchemy.orm import Session

from market.chain.contracts import ChainEvent
from market.chain.models import TxIntent
from market.chain.service import intent_by_key, queue_intent
from market.db.base import from_unix
from market.db.session import Database
from market.domain.lifecycle import IntentStatus
from market.domain.network import NetworkParameters
from market.events.service import emit
from market.jobs import service as jobs
from market.settlement.record import build_record
from market.storage.service import Storage
from zoo_protocol.cid import digest_of
from zoo_protocol.hashing import to_hex
from zoo_protocol.record import MAX_RECORD_BYTES, JobRecord, paid_units_root

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
        queue_intent(
            session,
            key=_key(job_id),
            kind="settle",
            subject=job_id,
            contract="JobEscrow",
            function="settle",
            arguments=settle_arguments(record, blob.cid),
        )


def settle_arguments(record: JobRecord, record_cid: str) -> list[Any]:
    """Arguments of ``JobEscrow.settle`` for a record: providers ascending, each with its number of verified units."""
    paid = record.paid_units()
    counts = Counter(unit.provider for unit in paid)
    payments = [
        {"provider": provider, "units": counts[provider]} for provider in sorted(counts, key=lambda a: int(a, 16))
    ]
    price = int(record.clearing_price_wei_per_gpu_hour) if paid else 0
    root = paid_units_root(record.job_id, paid)
    return [record.job_id, price, payments, root, to_hex(digest_of(record_cid))]


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
