"""Reads of samples and of the windows of units, and the leases that verification handles."""

from collections.abc import Sequence
from typing import Any, Protocol

from sqlalchemy.orm import Session

from market.domain.lifecycle import UNIT_DECIDED
from market.platform.db.rows import from_row
from market.training.commitments import service as commitments
from market.verification.samples import repository
from market.verification.samples.schemas import CommitmentView
from market.verification.windows import repository as windows_repository
from market.verification.windows.models import Window
from market.verification.windows.omissions import inclusion_proof
from zoo_protocol.payments.job_record import ReplayRecord


class LeaseSummary(Protocol):
    """Fields of a reveal or replay lease. The caller has locked the lease, its job and its unit."""

    id: Any
    status: Any
    reason: Any
    created_at: Any
    task: Any
    unit_id: Any
    replay_id: Any


def is_revealed(session: Session, cid: str) -> bool:
    """Return True if a sampled segment starts from the state in this file."""
    return repository.is_revealed(session, cid)


def signed_replays(session: Session, unit_id: int, leaves: Sequence[str], unit_class: str) -> list[ReplayRecord]:
    """Return the opened results on a unit's segments; cross-class ones only if they passed."""
    found = []
    for segment, replay in repository.results_on_unit(session, unit_id):
        claimed = replay.end_leaf == leaves[segment + 1]
        verdict = "tolerated" if replay.comparison_id else "bit_equal" if claimed else "refuted"
        environment_class = replay.environment_class or unit_class
        found.append(
            from_row(ReplayRecord, replay, segment=segment, verdict=verdict, environment_class=environment_class)
        )
    return found


def drawn_segments(session: Session, unit_id: int) -> list[int]:
    return [sample.segment for sample in repository.samples_of_unit(session, unit_id)]


def window_of(session: Session, leaf: str) -> Window | None:
    """Return the window of an acknowledged commitment; None before it is in one."""
    found = commitments.acknowledged_unit(session, leaf)
    window_id = None if found is None else found[1].window_id
    return None if window_id is None else windows_repository.window(session, window_id)


def inclusion(session: Session, leaf: str) -> CommitmentView | None:
    """Return the inclusion of a commitment; None if it was not acknowledged."""
    found = commitments.acknowledged_unit(session, leaf)
    if found is None:
        return None
    given, unit = found
    trace, states = None, {}
    if unit.status in UNIT_DECIDED:
        trace = unit.leaves or None
        samples = repository.samples_of_unit(session, unit.id)
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
