"""Renewal of a job's nodes: at the start of each round, a node that asks for too much or is unfit by now may leave.

A job's price is fixed when it is matched and never changes, so it cannot exceed what is in escrow. A provider that asks
for more works on at that price for the notice period; from the first round after it, it gets no more units of the job,
and its slot is filled from the book at the job's price. A cheaper ask changes nothing for the job.

A node that no longer meets the job's requirements, because its attestation has ended or its reliability fell, that
takes its stake out, or that is jailed, is replaced in the same way, without notice. A job can last longer than
unbonding.
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
    """Vacate those of ``slots`` (none with work in this round) whose nodes gave notice of an ask beyond the price."""
    assert job.clearing_price_wei is not None  # set when the job was matched
    assert job.fee_bps is not None  # set when it was funded
    noticed_until = database_now(session) - timedelta(seconds=settings.price_notice_seconds)
    asks = providers.standing_prices(session, [slot.provider for slot in slots if slot.provider is not None])
    for slot in slots:
        price_wei, placed_at = asks.get(slot.provider or "", (0, noticed_until))
        if placed_at <= noticed_until and gross_ask(price_wei, job.fee_bps) > job.clearing_price_wei:
            slot.provider = None


def drop_ineligible_nodes(session: Session, settings: Settings, job: Job, slots: Sequence[Slot]) -> None:
    """Vacate those of ``slots`` (none with work in this round) whose nodes do not meet the requirements any more, who
    are jailed, or who could not be punished for what they do."""
    requirements = Requirements.of(job.requirements)
    holders = [slot.provider for slot in slots if slot.provider is not None]
    nodes = providers.nodes_among(session, settings, holders, database_now(session))
    barred = providers.ineligible_providers(session, NETWORKS[settings.network], holders)
    for slot in slots:
        if slot.provider in barred or (slot.provider in nodes and not requirements.accepts(nodes[slot.provider])):
            slot.provider = None
