"""Routes for unit commitments and omission claims."""

from typing import Annotated

from fastapi import APIRouter, Path

from market.accounts.deps import CurrentAccount
from market.platform.db.rows import from_row
from market.platform.http.deps import Reads
from market.platform.http.refusals import refusals
from market.training.commitments.errors import CommitmentNotFound
from market.training.leases import service as leases
from market.verification.samples import service
from market.verification.samples.schemas import CommitmentView, OmissionView, OpenWorkView
from market.verification.windows import repository as windows_repository

MAX_OMISSIONS = 200

router = APIRouter(prefix="/v1", tags=["leases"])

Leaf = Annotated[str, Path(pattern=r"^0x[0-9a-f]{64}$", description="The commitment's leaf: 0x hex of 32 bytes.")]


@router.get("/commitments/{unit_id}", responses=refusals(CommitmentNotFound))
def get_commitment(unit_id: Leaf, session: Reads) -> CommitmentView:
    """Return an acknowledged commitment with the proof of its inclusion. Public.

    Check the proof, and that the contract WorkWindows has the root. A decided unit's trace and states show the first
    false segment by a replay; its leaves lead to the committed trace root.
    """
    found = service.inclusion(session, unit_id)
    if found is None:
        raise CommitmentNotFound(f"The commitment {unit_id} was not acknowledged.", field="unit_id")
    return found


@router.get("/omissions")
def list_omissions(account: CurrentAccount, session: Reads) -> list[OmissionView]:
    """List your newest 200 claims on chain that a commitment was not included."""
    claims = windows_repository.omissions_of(session, account.address, MAX_OMISSIONS)
    return [from_row(OmissionView, claim, unit_id=claim.leaf) for claim in claims]


@router.get("/work")
def get_open_work(account: CurrentAccount, session: Reads) -> OpenWorkView:
    """Return the work of your node that is not over, before you take out its stake."""
    job_ids, undecided_units = leases.open_work(session, account.address)
    return OpenWorkView(job_ids=job_ids, undecided_units=undecided_units)
