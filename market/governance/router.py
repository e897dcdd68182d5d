"""Governance over REST: acts, operations, payouts under challenge, events, roles, audit log."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import StringConstraints
from sqlalchemy.orm import Session

from market.accounts.deps import AdminAccount, CurrentAccount, SignedInAccount
from market.accounts.errors import NotPermitted, SessionRequired
from market.chain.contracts.codec import Deployment
from market.chain.service import final_block
from market.chain.views import ChainViews
from market.governance import acts, parameters, payments, service
from market.governance.errors import (
    ActRefused,
    EventNotFound,
    OperationNotFound,
    PayoutNotFound,
    SentActDiffers,
    SentActNotFound,
)
from market.governance.schemas import (
    ActProgress,
    ActView,
    AuditEntry,
    AuditPage,
    EventPage,
    EventView,
    OperationPage,
    ParameterValue,
    PaymentView,
    PayoutView,
    PreparedView,
    PrepareRequest,
    RoleHolder,
    SenderRequest,
    SentActRequest,
)
from market.platform.db.base import utc_now
from market.platform.db.rows import from_row
from market.platform.events import service as audit
from market.platform.http.deps import Reads, ServicesDep, Uow
from market.platform.http.errors import ChainDown
from market.platform.http.refusals import refusals
from market.platform.http.scopes import scoped
from market.platform.http.services import Services
from market.platform.http.types import HashString, RowId
from zoo_protocol.acts.calls import Contracts

router = APIRouter(prefix="/v1", tags=["governance"])

ActKey = Annotated[str, Path(max_length=64, description="Key of the act, from GET /v1/governance/acts.")]
OperationId = Annotated[HashString, Path(description="The timelock's id of the operation.")]
EventId = Annotated[RowId, Path(description="Id of the event, from GET /v1/governance/events.")]
BatchNumber = Annotated[int, Path(ge=1, lt=2**24, description="Number of the batch in the contract.")]
TxHash = Annotated[HashString, Path(description="Hash of the sent transaction.")]
Storable = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]  # PostgreSQL refuses U+0000
Limit = Annotated[int, Query(ge=1, le=200, description="Maximum number.")]


@router.get("/governance/acts")
def list_acts() -> list[ActView]:
    """Return the table of acts: contract, function, role, delay and words of each."""
    return acts.acts()


@router.post("/governance/acts/{key}/prepare", responses=refusals(ActRefused, ChainDown), openapi_extra=scoped(None))
def prepare_act(key: ActKey, body: PrepareRequest, _: CurrentAccount, services: ServicesDep) -> PreparedView:
    """Prepare an act for your wallet: call data, words, simulation, and a file for a Safe."""
    with services.database.reading() as session:
        contracts = _contracts(session, services)
    return acts.prepare_act(services.part(ChainViews), contracts, body.sender, key, body.arguments)


@router.get("/governance/operations")
def list_operations(
    session: Reads,
    services: ServicesDep,
    pending: Annotated[bool, Query(description="Only those that were neither executed nor cancelled.")] = False,
    after: Annotated[HashString | None, Query(description="Id of the last operation seen.")] = None,
    limit: Limit = 50,
) -> OperationPage:
    """Return the timelock's operations with their countdown and words, newest first."""
    contracts = _contracts(session, services)
    items = service.operations(session, contracts, utc_now(), pending=pending, after=after, limit=limit)
    return OperationPage(items=items, next_after=items[-1].id if len(items) == limit else None)


@router.post(
    "/governance/operations/{operation_id}/execute",
    responses=refusals(OperationNotFound, ChainDown),
    openapi_extra=scoped(None),
)
def prepare_execution(
    operation_id: OperationId, body: SenderRequest, _: CurrentAccount, services: ServicesDep
) -> PreparedView:
    """Prepare the execution of a due operation for your wallet."""
    with services.database.reading() as session:
        contracts, operation = _contracts(session, services), service.operation_of(session, operation_id)
    return acts.prepare_execution(services.part(ChainViews), contracts, body.sender, operation)


@router.post(
    "/governance/operations/{operation_id}/cancel",
    responses=refusals(OperationNotFound, ChainDown),
    openapi_extra=scoped(None),
)
def prepare_cancellation(
    operation_id: OperationId, body: SenderRequest, _: CurrentAccount, services: ServicesDep
) -> PreparedView:
    """Prepare the cancellation of a pending operation for your wallet."""
    with services.database.reading() as session:
        contracts, operation = _contracts(session, services), service.operation_of(session, operation_id)
    return acts.prepare_cancellation(services.part(ChainViews), contracts, body.sender, operation)


@router.get("/governance/payouts")
def list_payouts(session: Reads) -> list[PayoutView]:
    """Return batches and reward epochs under their countdown, against the market's own record."""
    return service.payouts_under_challenge(session, utc_now())


@router.post(
    "/governance/batches/{number}/veto", responses=refusals(PayoutNotFound, ChainDown), openapi_extra=scoped(None)
)
def prepare_veto(number: BatchNumber, body: SenderRequest, _: CurrentAccount, services: ServicesDep) -> PreparedView:
    """Prepare the veto of a batch for your wallet, with the contents that the chain has."""
    with services.database.reading() as session:
        contracts, batch = _contracts(session, services), service.batch_of(session, number)
    return acts.prepare_batch_veto(services.part(ChainViews), contracts, body.sender, batch)


@router.get("/governance/events")
def list_governance_events(
    session: Reads,
    services: ServicesDep,
    after: Annotated[RowId | None, Query(description="Id of the last event seen.")] = None,
    limit: Limit = 50,
) -> EventPage:
    """Return changes of roles, pauses, steps of the timelock and unknown payouts, newest first."""
    items = service.events(session, _contracts(session, services), after, limit)
    return EventPage(items=items, next_after=items[-1].id if len(items) == limit else None)


@router.get("/governance/alarms")
def list_alarms(session: Reads, services: ServicesDep) -> list[EventView]:
    """Return the governance events that were neither sent from here nor acknowledged."""
    return service.alarms(session, _contracts(session, services))


@router.post(
    "/governance/events/{event_id}/acknowledge",
    status_code=204,
    responses=refusals(EventNotFound, SessionRequired, NotPermitted),
    openapi_extra=scoped(None),
)
def acknowledge_event(event_id: EventId, account: AdminAccount, session: Uow) -> None:
    """End an alarm, as an admin of the market. The audit log records it."""
    service.acknowledge(session, event_id, account.address)


@router.get("/governance/parameters")
def list_parameters(session: Reads, services: ServicesDep) -> list[ParameterValue]:
    """Return the contracts' parameters by final events, with the changes that wait."""
    return parameters.parameters(session, _contracts(session, services), services.network, utc_now())


@router.get("/governance/payments")
def list_payments(session: Reads, limit: Limit = 50) -> list[PaymentView]:
    """Return the treasury's newest payments by final events, newest first."""
    return payments.payments(session, limit)


@router.get("/governance/roles")
def list_roles(session: Reads) -> list[RoleHolder]:
    """Return which account holds which role of which contract, by final events."""
    return service.role_holders(session)


@router.post(
    "/governance/sent-acts",
    status_code=204,
    responses=refusals(SessionRequired, NotPermitted, SentActNotFound, SentActDiffers, ChainDown),
    openapi_extra=scoped(None),
)
def report_sent_act(body: SentActRequest, account: SignedInAccount, services: ServicesDep) -> None:
    """Report the transaction of an act that you sent. Its events raise no alarm.

    Only admins of the market and holders of a role on chain can do this. Sender and call data must be those of the act.
    """
    with services.database.reading() as session:
        contracts, roles = _contracts(session, services), service.role_holders(session, account.address)
    if not account.is_admin and not roles:
        raise NotPermitted("this is for admins of the market and holders of a role on chain", field="Authorization")
    sent = acts.sent_transaction(services.part(ChainViews), body.tx_hash)
    with services.database.transaction() as session:
        service.record_sent(session, contracts, account.address, body.act, body.stage, sent)


@router.get("/governance/transactions/{tx_hash}", responses=refusals(ChainDown), openapi_extra=scoped(None))
def follow_act(tx_hash: TxHash, _: CurrentAccount, services: ServicesDep) -> ActProgress:
    """Return whether a sent transaction waits, is mined, is final or has reverted."""
    with services.database.reading() as session:
        final = final_block(session)
    return acts.follow(services.part(ChainViews), final, tx_hash)


@router.get("/audit", responses=refusals(SessionRequired, NotPermitted), openapi_extra=scoped(None))
def list_audit_entries(
    _: AdminAccount,
    session: Reads,
    actor: Annotated[Storable | None, Query(max_length=42, description="Address, `market` or `chain`.")] = None,
    subject: Annotated[Storable | None, Query(max_length=80, description="Id of the subject, such as a job.")] = None,
    kind: Annotated[Storable | None, Query(max_length=16, description="Kind of the subject, such as `job`.")] = None,
    search: Annotated[Storable | None, Query(max_length=80, description="Text in event, reason or data.")] = None,
    after: Annotated[RowId | None, Query(description="Id of the last entry seen.")] = None,
    limit: Limit = 50,
) -> AuditPage:
    """Return the audit log, newest first, as an admin of the market."""
    rows = audit.audit_entries(
        session, actor=actor, subject=subject, kind=kind, search=search, after=after, limit=limit
    )
    found = [from_row(AuditEntry, row) for row in rows]
    return AuditPage(items=found, next_after=found[-1].id if len(found) == limit else None)


def _contracts(session: Session, services: Services) -> Contracts:
    return service.contracts_of(session, services.part(Deployment), services.network)
