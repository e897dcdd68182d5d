"""Removal of overpriced or ineligible nodes from a job at the start of a round.

A job's price is fixed at its match, so it cannot exceed the escrow. A provider that raises its ask works on at the old
price for the notice period. From the next round on, another node from the book fills its replica at the job's price.

A node that is jailed, unbonds its stake or fails the requirements (attestation ended, reliability fell) is replaced in
the same way without notice. A job can last longer than unbonding.
"""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy.orm import Session

from market.domain.auctions.clearing import gross_ask
from market.domain.network import NETWORKS
from market.domain.nodes.placement import Requirements
from market.jobs.models import Job, Slot
from market.platform.db.session import database_now
from market.providers import service as providers
from market.settings import Settings


def drop_overpriced_nodes(session: Session, settings: Settings, job: Job, slots: Sequence[Slot]) -> None:
    """Vacate idle ``slots`` whose nodes' asks exceed the price since the notice period."""
    assert job.clearing_price_wei is not None  # set when the job was matched
    assert job.fee_bps is not None  # set when it was funded
    noticed_until = database_now(session) - timedelta(seconds=settings.price_notice_seconds)
    asks = providers.open_ask_prices(session, [slot.provider for slot in slots if slot.provider is not None])
    for slot in slots:
        price_wei, placed_at = asks.get(slot.provider or "", (0, noticed_until))
        if placed_at <= noticed_until and gross_ask(price_wei, job.fee_bps) > job.clearing_price_wei:
            slot.provider = None


def drop_ineligible_nodes(session: Session, settings: Settings, job: Job, slots: Sequence[Slot]) -> None:
    """Vacate idle ``slots`` whose nodes are jailed, not slashable or do not fit any more."""
    requirements = Requirements.of(job.requirements)
    holders = [slot.provider for slot in slots if slot.provider is not None]
    nodes = providers.nodes_among(session, settings, holders, database_now(session))
    barred = providers.ineligible_providers(session, NETWORKS[settings.network], holders)
    for slot in slots:
        if slot.provider in barred or (slot.provider in nodes and not requirements.accepts(nodes[slot.provider])):
            slot.provider = None
