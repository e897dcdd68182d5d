"""Lease routes: poll of a node, heartbeat of a lease, commit, complete, fail."""

import time

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool

from market.accounts.deps import CurrentAccount
from market.platform.http.deps import ServicesDep, Uow
from market.platform.http.errors import InvalidSignature, StorageDown
from market.platform.http.refusals import refusals
from market.platform.http.services import Services
from market.platform.storage.client import Storage
from market.providers import liveness
from market.providers.errors import NotRegistered, WalletInUse
from market.training.commitments.errors import CommitmentChanged, CommitmentRepeated, CommitmentTooEarly
from market.training.commitments.service import Acknowledger
from market.training.deliveries import service
from market.training.leases import service as leases
from market.training.leases.api_liveness import REPORTS_LIVENESS, LeaseId
from market.training.leases.errors import (
    LeaseLost,
    ReplayCommitted,
    ReplayMismatch,
    ReplayNotCommitted,
    ResultRefused,
    WrongStep,
)
from market.training.leases.long_poll import LeaseWaiters
from market.training.leases.probes import record_probe
from market.training.leases.schemas import (
    Commit,
    CommitState,
    Complete,
    FailLease,
    Heartbeat,
    HeartbeatView,
    LeaseKind,
    LeaseState,
    LeaseView,
    Poll,
    PollView,
)

router = APIRouter(prefix="/v1/leases", tags=["leases"], dependencies=[REPORTS_LIVENESS])


@router.post("/next", responses=refusals(NotRegistered, WalletInUse))
async def poll_for_work(body: Poll, request: Request, account: CurrentAccount, services: ServicesDep) -> PollView:
    """Send a heartbeat with a signed challenge, and wait for work.

    The heartbeat counts from the start of the call. Without heartbeats a node gets no work. No transaction is open
    while the call waits.
    """
    node, lease = account.address, None
    state = await run_in_threadpool(liveness.receive, services, node, body)
    began = time.monotonic()
    if state.counted:
        lease = await run_in_threadpool(_pull, services, node, body.kinds)
        if lease is None and body.wait_seconds:
            await services.part(LeaseWaiters).wait(node, body.kinds, body.wait_seconds)
            if not await request.is_disconnected():
                lease = await run_in_threadpool(_pull, services, node, body.kinds)
    return PollView(**dict(state), lease=lease, waited_ms=round(1000 * (time.monotonic() - began)))


def _pull(services: Services, address: str, kinds: list[LeaseKind]) -> LeaseView | None:
    with services.database.reading() as session:
        if not leases.has_offer(session, address, kinds):
            return None
    with services.database.transaction() as session:
        return leases.next_lease(session, address, kinds, services.settings.lease_seconds)


@router.post("/{lease_id}/heartbeat", responses=refusals(LeaseLost, WrongStep))
def extend_lease(
    lease_id: LeaseId, body: Heartbeat, account: CurrentAccount, services: ServicesDep, session: Uow
) -> HeartbeatView:
    """Keep a lease. It expires after ``lease_seconds`` without a heartbeat."""
    held, seconds = (session, lease_id, account.address, body.token), services.settings.lease_seconds
    if body.probe is not None:
        return HeartbeatView(expires_at=record_probe(*held, body.probe, seconds))
    return HeartbeatView(expires_at=leases.heartbeat(*held, body.step, seconds))


@router.post(
    "/{lease_id}/commit",
    responses=refusals(
        LeaseLost,
        WrongStep,
        InvalidSignature,
        CommitmentChanged,
        CommitmentRepeated,
        CommitmentTooEarly,
        ReplayCommitted,
    ),
)
def commit_lease(
    lease_id: LeaseId, body: Commit, account: CurrentAccount, services: ServicesDep, session: Uow
) -> CommitState:
    """Commit to a result: trace root and salted payload hash, or a replay's result hash.

    A unit commitment returns the inclusion acknowledgement; a repeated call returns the same one. Reveal nothing
    before you have it.
    """
    given = service.commit(
        session, services.network, services.domain, services.part(Acknowledger), lease_id, account.address, body
    )
    return CommitState(id=lease_id, status="active", acknowledgement=given)


@router.post(
    "/{lease_id}/complete",
    responses=refusals(LeaseLost, WrongStep, ResultRefused, StorageDown, ReplayNotCommitted, ReplayMismatch),
)
def complete_lease(lease_id: LeaseId, body: Complete, account: CurrentAccount, services: ServicesDep) -> LeaseState:
    """Deliver the result of a lease. Idempotent."""
    service.complete(services.database, services.part(Storage), lease_id, account.address, body)
    return LeaseState(id=lease_id, status="done")


@router.post("/{lease_id}/fail", responses=refusals(LeaseLost))
def fail_lease(lease_id: LeaseId, body: FailLease, account: CurrentAccount, session: Uow) -> LeaseState:
    """Give up a lease. The market offers the work to another node."""
    leases.fail(session, lease_id, account.address, body.token, body.code, body.detail)
    return LeaseState(id=lease_id, status="failed")
