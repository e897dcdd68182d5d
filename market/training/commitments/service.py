"""Unit commitments and their commitment windows."""

from collections.abc import Collection, Mapping

from sqlalchemy.orm import Session

from market.platform.db.base import utc_now
from market.training.commitments import repository as commitments_repository
from market.training.commitments.models import Acknowledgement
from market.training.units import repository as units_repository
from market.training.units.facts import UnitSummary, facts
from zoo_protocol.payments.job_record import leaf_of


def windowless_units(session: Session, limit: int) -> list[UnitSummary]:
    """Lock and return units due to enter a window, oldest first; skip locked ones."""
    return [facts(job, unit) for job, unit in commitments_repository.lock_windowless_units(session, limit)]


def assign_window(session: Session, rates: Mapping[int, int | None], window_id: int) -> None:
    """Put locked units into a window; their order gives the leaf index.

    ``rates`` has minimum sampling rates in basis points by unit id; None: not sampled.
    """
    units = units_repository.units_by_id(session, rates)
    for index, (unit_id, sampling_bps) in enumerate(rates.items()):
        unit = units[unit_id]
        unit.window_id, unit.window_index, unit.sampling_bps = window_id, index, sampling_bps


def window_units(session: Session, window_id: int) -> list[UnitSummary]:
    return [facts(job, unit) for job, unit in commitments_repository.units_of_window(session, window_id)]


def window_leaves(session: Session, window_id: int) -> list[bytes]:
    return [leaf_of(commitment) for commitment in commitments_repository.commitments_of_window(session, window_id)]


def acknowledged_unit(session: Session, leaf: str) -> tuple[Acknowledgement, UnitSummary] | None:
    found = commitments_repository.acknowledged_unit(session, leaf)
    if found is None:
        return None
    given, job, unit = found
    return given, facts(job, unit)


def outstanding_acknowledgements(session: Session, open_windows: Collection[int]) -> tuple[int, int]:
    """Return (all, late) acknowledged commitments not included; ``open_windows`` not final."""
    return commitments_repository.count_outstanding(session, open_windows, utc_now())
