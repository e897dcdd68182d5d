"""Work for nodes over REST: long poll, heartbeat, commit, complete, fail."""

import time
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.concurrency import run_in_threadpool

from market.accounts.deps import CurrentAccount
from market.accounts.errors import NotAuthenticated
from market.api.deps import ServicesDep, Uow
from market.api.errors import InvalidSignature, StorageDown
from market.api.openapi import refusals
from market.api.services import Services
from market.jobs import leases, results
from market.jobs.acknowledgements import Acknowledger
from market.jobs.errors import CommitmentChanged, CommitmentRepeated, LeaseLost, ResultRefused, WrongStep
from market.jobs.lease_schemas import (
    Commit,
    CommitState,
    Complete,
    FailLease,
    Heartbeat,
    HeartbeatView,
    LeaseKind,
    LeaseState,
    LeaseView,
    NextLease,
)
from market.jobs.offers import Offers
from market.jobs.presence import Presence
from market.storage.service import Storage
from market.verification.errors import ReplayCommitted, ReplayMismatch, ReplayNotCommitted


async def _present(services: ServicesDep) -> None:
    """No lease is judged before it is known for how long nobody could keep it."""
    if services.part(Presence).is_due:
        await services.part(Presence).report_soon()


PRESENT = Depends(_present)
"""For routes that judge leases."""

router = APIRouter(prefix="/v1/leases", tags=["leases"], dependencies=[PRESENT])

LeaseId = Annotated[str, Path(max_length=36, description="The lease's id, as POST /v1/leases/next gave it.")]


@router.post(
    "/next",
    response_model=LeaseView,
    responses={204: {"description": "No work within wait_seconds."}, **refusals(NotAuthenticated)},
)
async def next_lease(
    body: NextLease, request: Request, account: CurrentAccount, services: ServicesDep
) -> LeaseView | Response:
    """Wait for work addressed to the caller. No transaction is open while it waits."""
    until = time.monotonic() + body.wait_seconds
    while not await request.is_disconnected():
        lease = await run_in_threadpool(_pull, services, account.address, body.kinds)
        if lease is not None:
            return lease
        left = until - time.monotonic()
        if left <= 0:
            break
        await services.part(Offers).wait(account.address, body.kinds, left)
    return Response(status_code=204)


def _pull(services: Services, address: str, kinds: list[LeaseKind]) -> LeaseView | None:
    with services.database.reading() as session:
        if not leases.is_offered_some(session, address, kinds):
            return None
    with services.database.transaction() as session:
        return leases.next_lease(session, address, kinds, services.settings.lease_seconds)


@router.post("/{lease_id}/heartbeat", responses=refusals(NotAuthenticated, LeaseLost))
def extend_lease(
    lease_id: LeaseId, body: Heartbeat, account: CurrentAccount, services: ServicesDep, session: Uow
) -> HeartbeatView:
    """Keep a lease. A node that stays silent for ``lease_seconds`` loses it."""
    expires_at = leases.heartbeat(
        session, lease_id, account.address, body.token, body.step, services.settings.lease_seconds
    )
    return HeartbeatView(expires_at=expires_at)


@router.post(
    "/{lease_id}/commit",
    responses=refusals(
        NotAuthenticated,
        LeaseLost,
        WrongStep,
        InvalidSignature,
        CommitmentChanged,
        CommitmentRepeated,
        ReplayCommitted,
    ),
)
def commit_lease(
    lease_id: LeaseId, body: Commit, account: CurrentAccount, services: ServicesDep, session: Uow
) -> CommitState:
    """Commit to a result: a unit's trace root and salted payload hash, or the hash of a replay's result.

    For a unit you get our acknowledgement, the same again if you repeat the call. Reveal nothing without it.
    """
    given = results.commit(session, services.domain, services.part(Acknowledger), lease_id, account.address, body)
    return CommitState(id=lease_id, status="active", acknowledgement=given)


@router.post(
    "/{lease_id}/complete",
    responses=refusals(
        NotAuthenticated, LeaseLost, WrongStep, ResultRefused, StorageDown, ReplayNotCommitted, ReplayMismatch
    ),
)
def complete_lease(lease_id: LeaseId, body: Complete, account: CurrentAccount, services: ServicesDep) -> LeaseState:
    """Deliver the result of a lease. Repeating it is harmless."""
    results.complete(services.database, services.part(Storage), lease_id, account.address, body)
    return LeaseState(id=lease_id, status="done")


@router.post("/{lease_id}/fail", responses=refusals(NotAuthenticated, LeaseLost))
def fail_lease(lease_id: LeaseId, body: FailLease, account: CurrentAccount, session: Uow) -> LeaseState:
    """Give a lease up; the work goes to another node."""
    leases.fail(session, lease_id, account.address, body.token, body.code, body.detail)
    return LeaseState(id=lease_id, status="failed")
