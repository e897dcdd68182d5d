"""Jobs whose training goes wrong, and what the market shows of their rollbacks."""

from dataclasses import replace
from typing import Any

import numpy as np
from sqlalchemy import select

from kit.jobs.jobs_fixtures import World
from market.auctions import service as auctions
from market.domain.network import DEVNET
from market.orders.reports.match_diagnostics import diagnose_unmatched_job
from market.platform.events.models import JobEventRow
from market.training.checkpoints.models import Checkpoint
from market.training.evaluation import service as evaluation
from training_gym.compress.payload_format import encode
from training_gym.units.checkpoint import CheckpointManifest


def checkpoints(world: World, job_id: str) -> list[Checkpoint]:
    return world.all(select(Checkpoint).where(Checkpoint.job_id == job_id).order_by(Checkpoint.round))


def manifest(world: World, checkpoint: Checkpoint) -> CheckpointManifest:
    return CheckpointManifest.from_bytes(world.storage.get(checkpoint.cid, max_bytes=2**20))


def rollbacks(world: World, job_id: str) -> list[Any]:
    query = select(JobEventRow).where(JobEventRow.job_id == job_id, JobEventRow.kind == "rollback")
    rows = world.all(query.order_by(JobEventRow.id))
    return [row.data for row in rows]


def why(world: World, job_id: str, code: str) -> list[str]:
    """Return the sentences of ``job why`` with this code."""
    with world.database.transaction() as session:
        job = world.read(job_id)
        books = auctions.book_status(session, job.tier_id, job.id)
        found = diagnose_unmatched_job(session, world.settings, DEVNET, job, books)
    return [one.sentence for one in found.findings if one.code == code]


def deliver_spike(world: World, nodes: list[str], share: float = 1.0) -> None:
    """Deliver a ``share`` of payloads that are all far too long, so that no rule excludes them."""
    common = np.random.default_rng(0).normal(0, 3, world.spec.num_parameters())
    for number, node in enumerate(nodes):
        own = np.random.default_rng(number + 1).normal(0, 2, len(common))
        work = world.work(node)
        work.hand_in(encode(world.spec, (share * (common + own)).astype(np.float32)))
        work.deliver()


def end_round(world: World, job_id: str) -> None:
    world.end_round(job_id)
    evaluation.validate(world.database, world.settings, world.storage, job_id)


def spiked_job(world: World, nodes: list[str], rounds: int) -> str:
    """Return a job whose second round has just ended with a spike."""
    job_id = unoffered_spike(world, nodes, rounds)
    world.dispatch(job_id)
    evaluation.validate(world.database, world.settings, world.storage, job_id)
    return job_id


def unoffered_spike(world: World, nodes: list[str], rounds: int) -> str:
    """Return a job whose second round has a spike of unknown loss, before the third is offered."""
    spec = replace(world.spec, training=replace(world.spec.training, rounds=rounds))
    job_id = world.running(nodes, document=spec.to_dict())
    world.deliver_all(nodes)
    end_round(world, job_id)
    deliver_spike(world, nodes)
    world.aggregate(job_id)
    return job_id
