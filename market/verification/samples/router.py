"""Commitments and their inclusion over REST: what a provider needs to hold us to our acknowledgements."""

from typing import Annotated

from fastapi import APIRouter, Path

from market.accounts.deps import CurrentAccount
from market.accounts.errors import NotAuthenticated
from market.platform.http.deps import Reads
from market.platform.http.refusals import refusals
from market.training.commitments.errors import CommitmentNotFound
from market.verification.samples import inclusion
from market.verification.samples.schemas import CommitmentView, OmissionView
from market.verification.windows import omissions

MAX_OMISSIONS = 200


router = APIRouter(prefix="/v1", tags=["leases"])


Leaf = Annotated[str, Path(pattern=r"^0x[0-9a-f]{64}$", description="The commitment's leaf: 0x hex of 32 bytes.")]


@router.get("/commitments/{unit_id}", responses=refusals(CommitmentNotFound))
def get_commitment(unit_id: Leaf, session: Reads) -> CommitmentView:
    """For everybody: where an acknowledged commitment stands, and the proof of its inclusion.

    Do not take our word: check the proof, and that the contract WorkWindows knows the root. Once the unit is decided,
    also what a replay of one's own needs to find the first false step: the leaves lead to the committed trace root.
    """
    found = inclusion.inclusion(session, unit_id)
    if found is None:
        raise CommitmentNotFound(f"No commitment {unit_id} was acknowledged.", field="unit_id")
    return CommitmentView(
        unit_id=unit_id,
        include_by=int(found.acknowledgement.include_by.timestamp()),
        signature=found.acknowledgement.signature,
        window_root=found.window_root,
        proof=found.proof,
        trace=found.trace,
        states=found.states,
    )


@router.get("/omissions", responses=refusals(NotAuthenticated))
def list_omissions(account: CurrentAccount, session: Reads) -> list[OmissionView]:
    """Your claims on chain that we left a commitment out, the newest 200."""
    return [
        OmissionView(
            unit_id=claim.leaf,
            status=claim.status,
            include_by=claim.include_by,
            deadline=claim.deadline,
            compensation_wei=claim.compensation_wei,
            tx=claim.tx,
        )
        for claim in omissions.claims_of(session, account.address, MAX_OMISSIONS)
    ]
