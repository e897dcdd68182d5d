"""Routes of the treasury and of the ledger's reconciliation."""

from dataclasses import asdict
from datetime import datetime

from fastapi import APIRouter
from pydantic import BaseModel

from market.chain.views import ChainViews, TreasuryState
from market.ledger.errors import LedgerBehind
from market.ledger.reconciliation import last_reconciliation
from market.platform.http.deps import Reads, ServicesDep
from market.platform.http.errors import ChainDown
from market.platform.http.refusals import refusals
from market.platform.http.shared_result import SharedResult
from market.platform.http.types import WeiOut

router = APIRouter(prefix="/v1", tags=["ledger"])


class Difference(BaseModel):
    """Amount of the ledger and of the chain, in wei."""

    name: str
    ledger_wei: str
    chain_wei: str


class ReconciliationView(BaseModel):
    """Ledger and chain at a final block. Unattributed ZEN bypassed the market's rules."""

    compared_at: datetime
    block_number: int
    block_hash: str
    agrees: bool
    difference_wei: str
    checked: int
    differences: list[Difference]
    unattributed_escrow_wei: str
    unattributed_stake_wei: str


class ShareView(BaseModel):
    """Destination of the treasury's funds, in wei."""

    destination: str
    share_bps: int
    available_wei: WeiOut
    spent_wei: WeiOut


class TreasuryView(BaseModel):
    """Treasury at one block, in wei."""

    block: int
    balance_wei: WeiOut
    received_wei: WeiOut
    shares: list[ShareView]


class TreasuryReads(SharedResult[TreasuryState]):
    """Reads of the treasury."""

    def __init__(self) -> None:
        super().__init__(lambda services: services.part(ChainViews).treasury())


@router.get("/treasury", responses=refusals(ChainDown))
async def get_treasury(services: ServicesDep) -> TreasuryView:
    """Return the treasury's receipts, balance and budget per purpose at the latest block."""
    return TreasuryView.model_validate(asdict(await services.part(TreasuryReads).get(services)))


@router.get("/ledger/reconciliation", responses=refusals(LedgerBehind))
def get_reconciliation(session: Reads) -> ReconciliationView:
    """Return the market's last comparison of every balance of the contracts with the ledger.

    The market compares once a minute by default.
    """
    last = last_reconciliation(session)
    if last is None:
        raise LedgerBehind("the market has stored no comparison of its ledger with the chain")
    return ReconciliationView(compared_at=last.at, **last.report)
