"""Projection of the on-chain registry of attestations.

An attestation names the software that holds a provider's key. If the network stops accepting a measurement, its
attestations end permanently; providers must be attested again after a new acceptance.

A GPU counts only for its newest attestation, because it answers challenges for any wallet. An attestation counts while
it covers all GPUs that its provider registered, and those of its tier.
"""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Select, any_, delete, func, literal, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Session

from market.chain.contracts.codec import ChainEvent
from market.domain.network import NetworkParameters
from market.platform.db.base import Address, from_unix
from market.providers.models import Attestation, AttestationChallenge, Provider


def on_attested(session: Session, event: ChainEvent) -> None:
    """Handle the final Attested event, which replaces any earlier attestation."""
    checked = (
        AttestationChallenge.provider == event.args["provider"],
        AttestationChallenge.report == event.args["report"],
    )
    gpus = session.scalar(select(AttestationChallenge.gpus).where(*checked)) or []
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


def on_revoked(session: Session, event: ChainEvent) -> None:
    session.execute(delete(Attestation).where(Attestation.address == event.args["provider"]))


def on_measurement_set(session: Session, event: ChainEvent) -> None:
    if not event.args["accepted"]:
        session.execute(delete(Attestation).where(Attestation.measurement == event.args["measurement"]))


def attested_until(
    session: Session, network: NetworkParameters, addresses: Sequence[str] | Select[str], now: datetime
) -> dict[str, datetime]:
    """Return the ends of the valid attestations of these addresses, or of a query's."""
    if isinstance(addresses, Select):
        is_among: ColumnElement[bool] = Attestation.address.in_(addresses)
    else:
        is_among = Attestation.address == any_(literal(list(addresses), ARRAY(Address)))
    registered = func.coalesce(Provider.hardware["gpu_count"].as_integer(), 0).label("registered")
    rows = session.execute(
        select(Attestation.address, Attestation.expires_at, Attestation.gpus, Provider.tier_id, registered)
        .outerjoin(Provider, Provider.address == Attestation.address)
        .where(is_among, Attestation.expires_at > now)
    )
    return {
        row.address: row.expires_at
        for row in rows
        if len(row.gpus) >= network.gpus_to_attest(row.tier_id, row.registered)
    }
