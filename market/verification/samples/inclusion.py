"""Proof that a window includes a unit."""

from sqlalchemy.orm import Session

from market.domain.lifecycle import UNIT_DECIDED
from market.training.commitments import service as commitments
from market.verification.samples import repository
from market.verification.samples.schemas import CommitmentView
from market.verification.windows import repository as windows_repository
from market.verification.windows.omissions import inclusion_proof


def inclusion(session: Session, leaf: str) -> CommitmentView | None:
    """Return the inclusion of a commitment; None if it was not acknowledged."""
    found = commitments.acknowledged_unit(session, leaf)
    if found is None:
        return None
    given, unit = found
    trace, states = None, {}
    if unit.status in UNIT_DECIDED:
        trace = unit.leaves or None
        samples = repository.samples_of_units(session, [unit.id]).get(unit.id, [])
        states = {sample.segment: sample.state_cid for sample in samples if sample.state_cid is not None}
    window = None if unit.window_id is None else windows_repository.window(session, unit.window_id)
    root, proof = (None, []) if window is None else (window.root, inclusion_proof(session, window, leaf))
    return CommitmentView(
        unit_id=leaf,
        include_by=int(given.include_by.timestamp()),
        signature=given.signature,
        window_root=root,
        proof=proof,
        trace=trace,
        states=states,
    )
