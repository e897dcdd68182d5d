"""Public routes for disputes: their data, start states and the referees' verdicts."""

from typing import Annotated, TypeVar

from fastapi import APIRouter, Path, Query, Request

from market.accounts.deps import CurrentAccount
from market.chain.contracts.codec import Deployment
from market.platform.db.rows import from_row
from market.platform.http.deps import Reads, ServicesDep, Uow
from market.platform.http.errors import BodyTooLarge, StorageDown, StorageQuotaExceeded
from market.platform.http.refusals import refusals
from market.training.uploads.errors import FileNotAsked, PieceRefused, UploadIncomplete, WrongFile
from market.training.uploads.router import (
    BINARY_BODY,
    FileCid,
    FileView,
    JoinedView,
    PieceCid,
    PieceNumber,
    PieceView,
    file_view,
    joined_view,
    take_piece,
)
from market.verification.disputes import repository, service
from market.verification.disputes.errors import (
    CommitteeNotJudging,
    DisputeNotFound,
    NotDisputedProvider,
    NotInCommittee,
    StepNotNamed,
    VerdictDiffers,
)
from market.verification.disputes.models import Dispute
from market.verification.disputes.schemas import (
    DisputeSummary,
    DisputeView,
    RefereeVerdict,
    StateRequest,
    VerdictRequest,
)
from zoo_protocol.messages import disputes_domain

Summary = TypeVar("Summary", bound=DisputeSummary)
router = APIRouter(prefix="/v1/disputes", tags=["leases"])

PIECE_PATH = "/v1/disputes/[^/]+/files/[^/]+/pieces/[^/]+"
"""Matches the paths of pieces, whose bodies are too large for memory."""

_NOT_REQUESTED = (NotDisputedProvider, DisputeNotFound, StepNotNamed, FileNotAsked)
DisputeId = Annotated[str, Path(pattern=r"^0x[0-9a-f]{64}$", description="Id in the contract Disputes.")]
Draw = Annotated[int | None, Query(ge=0, le=255, description="Number of the committee; default: the current one.")]


@router.get("")
def list_disputes(session: Reads) -> list[DisputeSummary]:
    """List the disputes that have not ended in a final block. Public."""
    return [_summary(DisputeSummary, dispute) for dispute in repository.open_disputes(session)]


@router.get("/{dispute_id}", responses=refusals(DisputeNotFound))
def get_dispute(dispute_id: DisputeId, session: Reads) -> DisputeView:
    """Return a dispute's revealed trace, selected segment and unit. Public."""
    dispute = service.get(session, dispute_id)
    return _summary(DisputeView, dispute, case=service.case(session, dispute.unit_key))


@router.put("/{dispute_id}/state", responses=refusals(NotDisputedProvider, DisputeNotFound, StepNotNamed))
def put_state(dispute_id: DisputeId, body: StateRequest, account: CurrentAccount, session: Uow) -> DisputeSummary:
    """Set the CID of the selected segment's start state, as the unit's provider; repeatable.

    Referees check the file by its digest on chain. An unavailable file has the penalty of a false segment.
    """
    dispute = service.set_state_cid(session, dispute_id, account.address, body.state_cid)
    return _summary(DisputeSummary, dispute)


@router.get("/{dispute_id}/files/{cid}", responses=refusals(*_NOT_REQUESTED, StorageDown))
def read_disputed_file(dispute_id: DisputeId, cid: FileCid, account: CurrentAccount, services: ServicesDep) -> FileView:
    """Return the state of a start file of the selected segment."""
    return file_view(services, service.expected_file(dispute_id, account.address, cid), cid)


@router.put(
    "/{dispute_id}/files/{cid}/pieces/{number}",
    responses=refusals(*_NOT_REQUESTED, PieceRefused, StorageQuotaExceeded, BodyTooLarge, StorageDown),
    openapi_extra=BINARY_BODY,
)
async def put_disputed_piece(
    dispute_id: DisputeId,
    cid: FileCid,
    number: PieceNumber,
    piece_cid: PieceCid,
    request: Request,
    account: CurrentAccount,
    services: ServicesDep,
) -> PieceView:
    """Store a piece of such a file, up to the size in the job's specification."""
    asked = service.expected_file(dispute_id, account.address, cid)
    return await take_piece(services, request, asked, account.address, cid, number, piece_cid)


@router.post(
    "/{dispute_id}/files/{cid}",
    responses=refusals(*_NOT_REQUESTED, UploadIncomplete, WrongFile, StorageQuotaExceeded, StorageDown),
)
def join_disputed_pieces(
    dispute_id: DisputeId, cid: FileCid, account: CurrentAccount, services: ServicesDep
) -> JoinedView:
    """Join the pieces into a file, kept until the unit's disputes are over. Idempotent."""
    return joined_view(services, service.expected_file(dispute_id, account.address, cid), account.address, cid)


@router.get("/{dispute_id}/verdicts", responses=refusals(DisputeNotFound))
def list_verdicts(dispute_id: DisputeId, session: Reads, draw: Draw = None) -> list[RefereeVerdict]:
    """List a committee's signed verdicts, which any account can submit. Public."""
    return [from_row(RefereeVerdict, verdict) for verdict in service.verdicts_of(session, dispute_id, draw)]


@router.post(
    "/{dispute_id}/verdicts",
    responses=refusals(NotInCommittee, DisputeNotFound, CommitteeNotJudging, VerdictDiffers),
)
def post_verdict(
    dispute_id: DisputeId, body: VerdictRequest, account: CurrentAccount, session: Uow, services: ServicesDep
) -> RefereeVerdict:
    """Deliver a verdict that a member of the current committee signed. Idempotent."""
    domain = disputes_domain(services.part(Deployment).chain_id, services.part(Deployment).address("Disputes"))
    return from_row(RefereeVerdict, service.store_verdict(session, domain, dispute_id, body))


def _summary(view: type[Summary], dispute: Dispute, **given: object) -> Summary:
    return from_row(view, dispute, dispute_id=dispute.id, unit_id=dispute.unit_key, **given)
