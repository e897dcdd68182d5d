"""Proof that a window includes a unit."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from market.domain.lifecycle import UNIT_DECIDED
from market.training.commitments import service as commitments
from market.training.commitments.service import AcknowledgementSummary
from market.verification.samples import repository
from market.verification.windows import repository as windows_repository
from market.verification.windows.omissions import inclusion_proof


@dataclass(frozen=True, slots=True)
class Inclusion:
    """What was promised for a commitment, and the window that holds it: None while it waits for one.

    Once the unit is decided its trace and the states that were served are nobody's secret: with them anybody sees
    where a replay leaves the claimed path (``zoo-compute verify unit``).
    """

    acknowledgement: AcknowledgementSummary
    window_root: str | None
    proof: list[str]
    trace: list[str] | None
    states: dict[int, str]


def inclusion(session: Session, leaf: str) -> Inclusion | None:
    """Where a commitment stands; None if it was never acknowledged."""
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
    return Inclusion(given, root, proof, trace, states)
