"""Attestations of trusted execution environments, as the registry on chain has them.

An attestation says which software a provider's key lives in. A measurement that is no longer accepted ends all
attestations for it; if it is accepted again, providers have to be attested anew before the market believes it.

A GPU backs one attestation, the newest: it answers whoever asks it, also for wallets of machines that it is not in. And
an attestation counts as long as it covers all GPUs that its provider registered, and those that its tier stands for.
"""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from market.chain.contracts.codec import ChainEvent
from market.domain.network import NetworkParameters
from market.platform.db.base import from_unix
from market.providers.models import Attestation, AttestationChallenge, Provider


def on_attested(session: Session, event: ChainEvent) -> None:
    """Handler of the final Attested event: it takes the place of any earlier attestation."""
    gpus = _gpus(session, event.args["provider"], event.args["report"])
    for other in session.scalars(select(Attestation).where(Attestation.gpus.overlap(gpus))):
        other.gpus = [serial for serial in other.gpus if serial not in gpus]
    session.merge(
        Attestation(
            address=event.args["provider"],
            measurement=event.args["measurement"],
            expires_at=from_unix(event.args["expiresAt"]),
            gpus=gpus,
        )
    )


def _gpus(session: Session, provider: str, report: str) -> list[str]:
    """Those that the evidence of an attestation covers, as the market found when it checked it."""
    said = AttestationChallenge.provider == provider, AttestationChallenge.report == report
    return session.scalar(select(AttestationChallenge.gpus).where(*said)) or []


def on_revoked(session: Session, event: ChainEvent) -> None:
    """Handler of the final Revoked event."""
    session.execute(delete(Attestation).where(Attestation.address == event.args["provider"]))


def on_measurement_set(session: Session, event: ChainEvent) -> None:
    """Handler of the final MeasurementSet event."""
    if not event.args["accepted"]:
        session.execute(delete(Attestation).where(Attestation.measurement == event.args["measurement"]))


def attested_until(
    session: Session, network: NetworkParameters, addresses: Sequence[str], now: datetime
) -> dict[str, datetime]:
    """Until when each of these addresses is attested; those that are not, or no longer, are left out."""
    registered = func.coalesce(Provider.hardware["gpu_count"].as_integer(), 0).label("registered")
    rows = session.execute(
        select(Attestation.address, Attestation.expires_at, Attestation.gpus, Provider.tier_id, registered)
        .outerjoin(Provider, Provider.address == Attestation.address)
        .where(Attestation.address.in_(addresses), Attestation.expires_at > now)
    )
    return {
        row.address: row.expires_at
        for row in rows
        if len(row.gpus) >= network.gpus_to_attest(row.tier_id, row.registered)
    }
