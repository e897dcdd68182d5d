"""Replays in the database, by verifier."""

from sqlalchemy import select

from kit.verification.verification_fixtures import VerificationWorld
from market.providers.models import ProviderEpoch

OTHER_LEAF = "0x" + "ee" * 32


def replay_records(world: VerificationWorld) -> dict[str, tuple[int, int, int]]:
    """Return (right replays, gross price of their segments, wrong replays) by verifier."""
    rows = world.all(select(ProviderEpoch).where(ProviderEpoch.verified == 0))
    return {row.provider: (row.replays, row.replayed_wei, row.rejected) for row in rows if row.replays or row.rejected}


def asked_of(world: VerificationWorld, sample_id: int) -> str:
    (verifier,) = [r.verifier for r in world.replays() if r.sample_id == sample_id and r.status == "assigned"]
    return verifier
