"""Placement: assign sold nodes to jobs, and hot spares to vacant replicas.

The auction decides sellers, buyers and the price; placement does not change them (docs/auctions.md).
"""

from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from market.domain.auctions.clearing import gross_ask
from market.domain.nodes import assignment, placement
from market.domain.nodes.placement import Candidate, Requirements
from market.domain.nodes.scarcity import RECENT, Ask, scarcity
from market.jobs import repository as jobs_repository
from market.jobs.models import Job
from market.platform.db.base import utc_now
from market.providers import service as providers
from market.providers.service import Offer
from market.settings import Settings
from market.training.checkpoints import repository as checkpoints_repository
from market.training.units import repository as units_repository

_DATASET_SHARE = 0.5  # of a job's data; its newest checkpoint is the rest


def assign_nodes(
    session: Session, settings: Settings, sizes: Mapping[str, int], addresses: Sequence[str]
) -> dict[str, list[str]]:
    """Assign sold nodes to the jobs that bought them, at the lowest total cost of all gangs.

    All nodes suit all jobs, at the same price.
    """
    known = providers.nodes_among(session, settings, addresses, utc_now())
    missing = {}
    for job_id in sizes:
        job = jobs_repository.job(session, job_id)
        assert job is not None  # it has an open bid
        missing[job_id] = _missing(session, job, addresses)
    return assignment.assign_nodes(sizes, [known[address] for address in addresses], missing)


def best_spares(
    session: Session,
    settings: Settings,
    job: Job,
    count: int,
    spares: Sequence[Offer],
    holders: Sequence[str],
    supply: Sequence[Offer],
) -> list[str]:
    """Return up to ``count`` acceptable, affordable spares that fit best with ``holders``.

    ``supply`` has all offers of the tier, also of busy nodes. It gives a spare's scarcity.
    """
    if len(spares) <= count:
        return [spare.provider for spare in spares]
    assert job.clearing_price_wei is not None  # set when the job was matched
    assert job.fee_bps is not None  # set when it was funded
    missing = _missing(session, job, [spare.provider for spare in spares])
    asks = [Ask(Requirements.of(asked), nodes) for asked, nodes in jobs_repository.asks(session, job.tier_id, RECENT)]
    scarce = scarcity(asks, supply)
    candidates = [
        Candidate(
            spare,
            price=gross_ask(spare.min_price_wei, job.fee_bps) / job.clearing_price_wei,
            missing=missing.get(spare.provider, 1.0),
            scarcity=scarce.get(spare.kind, 0.0),
        )
        for spare in spares
    ]
    held = [Candidate(node) for node in providers.nodes_among(session, settings, holders, utc_now()).values()]
    return [chosen.node.provider for chosen in placement.choose(count, candidates, held)]


def _missing(session: Session, job: Job, addresses: Sequence[str]) -> dict[str, float]:
    """Return the share of the job's data that a node must fetch, for nodes that hold some of it."""
    have_dataset = units_repository.nodes_with_dataset(session, job.spec["data_config"]["dataset"], addresses)
    have_checkpoint = checkpoints_repository.holders_of_newest(session, job.id).intersection(addresses)
    return {
        address: _DATASET_SHARE * (address not in have_dataset)
        + (1 - _DATASET_SHARE) * (address not in have_checkpoint)
        for address in sorted(have_dataset | have_checkpoint)
    }
