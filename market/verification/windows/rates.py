"""Sampling rates of providers."""

from sqlalchemy.orm import Session

from market.domain.lifecycle import UnitStatus
from market.domain.network import NetworkParameters
from market.platform.db.base import utc_now
from market.providers import service as providers
from market.providers.attestation.chain_events import attested_until
from market.training.evaluation import service as evaluation
from market.training.units import service as units_service
from market.training.units.facts import UnitSummary
from market.verification.penalties import repository as penalties_repository
from zoo_protocol.verification.rules import sampling_rate_bps


def min_rate_bps(session: Session, network: NetworkParameters, unit: UnitSummary) -> int | None:
    """Return the unit's rate before the seed is known; None for an undelivered unit."""
    return rate_bps(session, network, unit) if unit.status == UnitStatus.UPLOADED else None


def rate_bps(session: Session, network: NetworkParameters, unit: UnitSummary) -> int:
    """Return the current sampling rate of the unit's segments in basis points."""
    attested = bool(attested_until(session, network, [unit.provider], utc_now()))
    flagged = evaluation.has_outlier_flag(session, unit)
    newcomer, floor = network.newcomer_sampling_bps, unit.min_sampling_bps
    return sampling_rate_bps(clean_units(session, unit), newcomer, floor, attested=attested, flagged=flagged)


def clean_units(session: Session, unit: UnitSummary) -> int:
    """Return settled units since the provider's last slash; 0 during a dispute."""
    if providers.is_disputed(session, unit.provider):
        return 0
    return units_service.clean_units_of(
        session, unit, since=penalties_repository.last_slashed_at(session, unit.provider)
    )
