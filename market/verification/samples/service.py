"""Sample reads for other packages."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from market.platform.db.rows import from_row
from market.verification.samples import repository
from zoo_protocol.payments.job_record import ReplayRecord


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
