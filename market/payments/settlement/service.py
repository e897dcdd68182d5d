"""Settlement: publish a batch's records, queue its post, handle its final events.

Running jobs are paid round by round, and every job ends with a settlement. Only verified units are paid, and each unit
is in one batch at most. After the batch's challenge period providers claim their pay by proof
(:mod:`market.payments.settlement.claims`).
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import cast

import structlog
from sqlalchemy.orm import Session

from market.chain.contracts.bindings import JobEscrow, JobEscrowJobLine
from market.chain.contracts.codec import ChainEvent
from market.chain.models import TxIntent
from market.chain.service import queue_intent
from market.domain.lifecycle import IntentStatus
from market.domain.network import NetworkParameters
from market.payments.payables import service as payables
from market.payments.settlement import repository
from market.payments.settlement.models import SettlementBatch, SettlementClaim, SettlementLine
from market.payments.settlement.plan import JobShare, due_batches
from market.payments.settlement.record import build_record
from market.platform.db.base import from_unix, utc_now
from market.platform.db.rows import from_row
from market.platform.db.session import Database
from market.platform.events.service import emit
from market.platform.storage.client import Storage
from market.settings import Settings
from zoo_protocol.content.cid import digest_of
from zoo_protocol.hashing import to_hex
from zoo_protocol.payments.job_record import MAX_RECORD_BYTES, JobRecord, PaidUnit, PaidUnits
from zoo_protocol.payments.settlement_batch import NO_ROOT, Batch, JobLine, build_batch

_log = structlog.get_logger(__name__)
VETOED = "settlement_vetoed"
REFUSED = "settlement_refused"


def settle(
    database: Database, storage: Storage, network: NetworkParameters, settings: Settings, now: datetime | None = None
) -> None:
    """Queue every batch that is due. One worker at a time holds the advisory lock.

    Raises:
        StorageError: a record could not be published. Its batch is not queued and stays due.
    """
    with database.advisory_lock("settlement") as alone:
        if not alone:
            return
        with database.transaction() as session:
            planned = [
                (
                    shares,
                    [
                        build_record(session, network, share.job, None if share.last else share.units)
                        for share in shares
                    ],
                )
                for shares in due_batches(session, settings, now or utc_now())
            ]
        for shares, records in planned:
            paid = [(unit, share.job.clearing_price_wei) for share in shares for unit in share.units]
            units = PaidUnits([from_row(PaidUnit, unit, price=str(price)) for unit, price in paid])
            cids = _publish(storage, units, records)
            with database.transaction() as session:
                _post(session, shares, units, cids)


def _publish(storage: Storage, units: PaidUnits, records: Sequence[JobRecord]) -> list[str]:
    """Store the batch's units, then the records that name them. Return the records' CIDs."""
    batch_cid = storage.put(units.to_bytes(), max_bytes=MAX_RECORD_BYTES).cid if units.units else None
    complete = [replace(record, batch_cid=batch_cid) for record in records]
    return [storage.put(record.to_bytes(), max_bytes=MAX_RECORD_BYTES).cid for record in complete]


def _post(session: Session, shares: Sequence[JobShare], units: PaidUnits, record_cids: Sequence[str]) -> None:
    """Write a batch with all its parts, and the intent that posts it."""
    # Decided units never change, so the published records still hold. The database refuses the whole batch if one of
    # its units entered another batch, or one of its jobs has another pending line.
    lines = [
        JobLine(
            job_id=share.job.id,
            price=share.job.clearing_price_wei or 0 if share.units else 0,
            units=len(share.units),
            from_round=share.from_round,
            to_round=share.to_round,
            last=share.last,
            record=to_hex(digest_of(cid)),
        )
        for share, cid in zip(shares, record_cids, strict=True)
    ]
    batch = build_batch(lines, units.units, {share.job.id: share.unit_pay for share in shares})
    row = SettlementBatch(root=None if batch.root == NO_ROOT else batch.root)
    session.add(row)
    session.flush()
    row.intent_key = f"settle:{row.id}"
    for share, cid in zip(shares, record_cids, strict=True):
        session.add(
            SettlementLine(
                settlement_id=row.id,
                job_id=share.job.id,
                status=repository.PENDING,
                units=len(share.units),
                from_round=share.from_round,
                to_round=share.to_round,
                last=share.last,
                record_cid=cid,
            )
        )
        if share.last:
            payables.set_record(session, share.job.id, cid)
    for share in shares:
        payables.add_to_batch(session, [unit.id for unit in share.units], row.id)
    session.add_all(_claims(row.id, batch, units))
    queue_intent(
        session,
        key=row.intent_key,
        kind="settle",
        subject=row.intent_key,
        **JobEscrow.settle(
            batch.claims_root, batch.units_root, [cast(JobEscrowJobLine, line.as_argument()) for line in lines]
        ),
        amount=sum(claim.amount for claim in batch.claims),
    )


def _claims(settlement_id: int, batch: Batch, units: PaidUnits) -> list[SettlementClaim]:
    worked: dict[str, set[str]] = {}
    for unit in units.units:
        worked.setdefault(unit.provider, set()).add(unit.job_id)
    return [
        SettlementClaim(
            settlement_id=settlement_id,
            provider=claim.provider,
            job_ids=sorted(worked[claim.provider]),
            amount_wei=claim.amount,
            proof=claim.proof,
        )
        for claim in batch.claims
    ]


def void_batches(session: Session) -> dict[str, int]:
    """Return the number of void batches by reason, zeros included for monitoring."""
    return {VETOED: 0, REFUSED: 0} | repository.void_counts(session)


def on_job_settled(session: Session, event: ChainEvent) -> None:
    """Record the payment of a final line, and end the job after its last line."""
    args, job_id = event.args, event.args["jobId"]
    if not payables.record_payment(
        session, job_id, paid_wei=args["paid"], fee_wei=args["fee"], refund_wei=args["refund"]
    ):
        _log.error("unknown_job_settled", job=job_id, tx=event.tx_hash)
        return
    line = repository.pending_line(session, job_id)
    if line is not None and _is_of(line, event):
        line.status = repository.SETTLED
        payables.mark_settled(session, job_id, line.settlement_id, from_unix(event.timestamp))
    else:
        _log.error("foreign_settlement_line", job=job_id, tx=event.tx_hash)
    amounts = {name: str(args[name.removesuffix("_wei")]) for name in ("paid_wei", "fee_wei", "refund_wei")}
    if args["last"]:
        payables.end_settlement(session, job_id, tx=event.tx_hash, at=from_unix(event.timestamp))
    emit(session, job_id, "settlement", {"state": "final" if args["last"] else "paid", "tx": event.tx_hash, **amounts})


def _is_of(line: SettlementLine, event: ChainEvent) -> bool:
    args = event.args
    return (line.units, line.from_round, line.to_round, line.last, to_hex(digest_of(line.record_cid))) == (
        args["units"],
        args["fromRound"],
        args["toRound"],
        args["last"],
        args["record"],
    )


def on_job_refunded(session: Session, event: ChainEvent) -> None:
    """Record the refund of a job's escrow to its payer after the refund delay, and end the job."""
    job_id, amount = event.args["jobId"], event.args["amount"]
    if payables.record_payment(session, job_id, paid_wei=0, fee_wei=0, refund_wei=amount) and payables.end_settlement(
        session, job_id, tx=event.tx_hash, at=from_unix(event.timestamp)
    ):
        emit(session, job_id, "settlement", {"state": "refunded", "tx": event.tx_hash, "refund_wei": str(amount)})


def on_batch_vetoed(session: Session, event: ChainEvent) -> None:
    """Free the units of a batch that a guardian vetoed."""
    batch = repository.batch_by_id(session, event.args["batchId"])
    if batch is not None:
        _void(session, batch, VETOED)
        _log.error("settlement_vetoed", batch=batch.batch_id, settlement=batch.id, tx=event.tx_hash)


def on_settlement_reverted(session: Session, event: ChainEvent) -> None:
    """Undo a job's payments by a vetoed batch; they return to its escrow or the payer."""
    args, job_id = event.args, event.args["jobId"]
    returned = args["net"] + args["fee"] if args["refunded"] else 0
    if not payables.record_payment(session, job_id, paid_wei=-args["net"], fee_wei=-args["fee"], refund_wei=returned):
        return
    if not args["refunded"]:
        payables.reopen_settlement(session, job_id)
    emit(session, job_id, "settlement", {"state": "vetoed", "reason": VETOED, "tx": event.tx_hash})


def on_settlement_intent(session: Session, intent: TxIntent) -> None:
    """Free the units of a reverted ``settle`` intent."""
    batch = repository.batch_by_intent(session, intent.key)
    if intent.status != IntentStatus.REVERTED or batch is None:
        return
    _log.error("settlement_refused", settlement=batch.id, reason=intent.reason, detail=intent.detail)
    for line in _void(session, batch, REFUSED):
        emit(session, line.job_id, "settlement", {"state": "refused", "reason": intent.reason})


def _void(session: Session, batch: SettlementBatch, reason: str) -> list[SettlementLine]:
    batch.void_reason, batch.voided_at = reason, utc_now()
    session.flush()  # first: a constraint keeps units in a batch that is not void
    payables.remove_from_batch(session, batch.id, reason)
    lines = repository.lines_of(session, batch.id)
    for line in lines:
        line.status = repository.VOID
    return lines
