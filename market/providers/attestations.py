"""Attestations of trusted execution environments, as the registry on chain has them.

An attestation says which software a provider's key lives in. A measurement that is no longer accepted ends all
attestations for it; if it is accepted again, providers have to be attested anew before the market believes it.
"""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from market.chain.contracts import ChainEvent
from market.db.base import from_unix
from market.providers.models import Attestation


def on_attested(session: Session, event: ChainEvent) -> None:
    """Handler of the final Attested event: it takes the place of any earlier attestation."""
    session.merge(
        Attestation(
            address=event.args["provider"],
            measurement=event.args["measurement"],
            expires_at=from_unix(event.args["expiresAt"]),
        )
    )


def on_revoked(session: Session, event: ChainEvent) -> None:
    """Handler of the final Revoked event."""
    session.execute(delete(Attestation).where(Attestation.address == event.args["provider"]))


def on_measurement_set(session: Session, event: ChainEvent) -> None:
    """Handler of the final MeasurementSet event."""
    if not event.args["accepted"]:
        session.execute(delete(Attestation).where(Attestation.measurement == event.args["measurement"]))


def attested_until(session: Session, addresses: Sequence[str], now: datetime) -> dict[str, datetime]:
    """Until when each of these addresses is attested; those that are not, or no longer, are left out."""
    rows = session.execute(
        select(Attestation.address, Attestation.expires_at).where(
            Attestation.address.in_(addresses), Attestation.expires_at > now
        )
    )
    return {row.address: row.expires_at for row in rows}
