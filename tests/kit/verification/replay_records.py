"""Replays in the database by verifier, and the minutes of a node's heartbeats."""

from datetime import timedelta

from sqlalchemy import select

from kit.verification.verification_fixtures import VerificationWorld
from market.domain.nodes.uptime import minute_of
from market.platform.db.base import utc_now
from market.providers.models import ProviderEpoch
from market.providers.record import repository as record_repository

OTHER_LEAF = "0x" + "ee" * 32


def replay_records(world: VerificationWorld) -> dict[str, tuple[int, int, int]]:
    """Return (right replays, gross price of their segments, wrong replays) by verifier."""
    rows = world.all(select(ProviderEpoch).where(ProviderEpoch.verified == 0))
    return {row.provider: (row.replays, row.replayed_wei, row.rejected) for row in rows if row.replays or row.rejected}


def asked_of(world: VerificationWorld, sample_id: int) -> str:
    (verifier,) = [r.verifier for r in world.replays() if r.sample_id == sample_id and r.status == "assigned"]
    return verifier


def seen(world: VerificationWorld, node: str, *minutes_ago: int) -> None:
    """Record heartbeats of the node so many minutes ago."""
    now = utc_now()  # once: a minute that ends in between would leave a gap
    for ago in minutes_ago:
        at = now - timedelta(minutes=ago)
        world.call(record_repository.mark_minute, node, *minute_of(at.timestamp()))
