"""Receipts and providers' claims over REST."""

import json
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query

from market.accounts.deps import CurrentAccount
from market.chain.views import ChainViews
from market.jobs.access import visible_job
from market.jobs.errors import JobNotFound
from market.ledger.reconciliation import last_reconciliation
from market.payments.settlement import claims
from market.payments.settlement.errors import NotSettledYet
from market.payments.settlement.receipt import job_receipt
from market.payments.settlement.record import decided_record
from market.payments.settlement.schemas import ClaimPage, ClaimView, DecidedUnits, Receipt, ReceiptSeconds
from market.platform.db.rows import from_row
from market.platform.http.deps import Reads, ServicesDep
from market.platform.http.refusals import refusals
from market.platform.storage.client import Storage
from market.training.commitments.errors import CommitmentNotFound

router = APIRouter(prefix="/v1", tags=["jobs"])
JobId = Annotated[str, Path(pattern=r"^0x[0-9a-f]{64}$", description="The job's id: 0x hex of 32 bytes.")]
Place = Annotated[int, Path(ge=0, lt=2**31, description="From 0.")]


@router.get("/jobs/{job_id}/receipt", responses=refusals(JobNotFound, NotSettledYet))
def get_receipt(job_id: JobId, account: CurrentAccount, services: ServicesDep) -> Receipt:
    """Receipt of your settled job, from final chain events and the published record.

    `zoo-compute job receipt ID --verify` recomputes it without the market.
    """
    with services.database.transaction() as session:
        job = visible_job(session, account, job_id)
        seconds = ReceiptSeconds(
            first_step=_seconds(job.created_at, job.first_step_at), total=_seconds(job.created_at, job.settled_at)
        )
        reconciled = last_reconciliation(session)
    receipt = job_receipt(services.database, services.part(Storage), services.part(ChainViews), job_id)
    agrees = reconciled is not None and reconciled.agrees
    return Receipt(**receipt, ledger_reconciled=agrees, seconds=seconds)


@router.get("/jobs/{job_id}/units/{round}/{slot}", responses=refusals(CommitmentNotFound))
def get_unit_record(job_id: JobId, round: Place, slot: Place, session: Reads, services: ServicesDep) -> DecidedUnits:
    """Public record of the decided attempts at a unit before their settlement.

    It can be verified without the market. The job's id is the hash of its order. Providers sign their commitments,
    whose Merkle roots are in the contract WorkWindows.
    """
    record = decided_record(session, services.network, job_id, round, slot)
    if record is None:
        raise CommitmentNotFound("No decided unit of this round and slot is in a committed window.", field="job_id")
    return DecidedUnits(record=json.loads(record.to_bytes()))


@router.get("/claims")
def list_claims(
    account: CurrentAccount,
    session: Reads,
    claimed: Annotated[bool, Query(description="True: claimed pay; false: open claims.")] = False,
    after: Annotated[int, Query(ge=0, description="Batch of the last one seen.")] = 0,
    limit: Annotated[int, Query(ge=1, le=200, description="Maximum number.")] = 50,
) -> ClaimPage:
    """Your pay in settled batches, with the Merkle proofs for your claims."""
    found = claims.claims_of(session, account.address, claimed=claimed, after_batch=after, limit=limit)
    items = [
        from_row(
            ClaimView,
            claim,
            batch_id=batch.batch_id or 0,
            amount_wei=str(claim.amount_wei),
            claimable_at=batch.claimable_at or batch.created_at,
        )
        for batch, claim in found
    ]
    return ClaimPage(items=items, next_after=items[-1].batch_id if len(items) == limit else None)


def _seconds(start: datetime, end: datetime | None) -> float | None:
    return None if end is None else round((end - start).total_seconds(), 3)
