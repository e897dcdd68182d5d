"""Audit of the rounds of a job that the market trained."""

import contextlib
from dataclasses import replace

from kit.jobs.jobs_fixtures import World
from market.domain.network import DEVNET
from market.jobs import service as jobs
from market.payments.settlement.record import build_record
from market.platform.storage.errors import StorageError
from training_gym.spec.config import TrainingSpec
from zoo_compute.audit.rounds import Rounds
from zoo_compute.audit.settlements import Verification
from zoo_compute.content.gateway import GatewayClient
from zoo_protocol.payments.job_record import VERIFIED

_DELIVERED = ("uploaded", "checking", "disputed")


def audit_rounds(world: World, job_id: str) -> tuple[Rounds, Verification]:
    """Return the checks of the rounds so far and their findings, with delivered units verified."""

    def fetch(_: str | None, cid: str | None) -> bytes | None:
        with contextlib.suppress(StorageError):
            return world.storage.get(cid or "", max_bytes=1 << 30)
        return None

    record = world.call(lambda session: build_record(session, DEVNET, jobs.get(session, job_id), None))
    units = [replace(one, status=VERIFIED) if one.status in _DELIVERED else one for one in record.units]
    result, spec = Verification(), TrainingSpec.from_dict(world.read(job_id).spec)
    with GatewayClient(["http://127.0.0.1:1"]) as gateway:
        rounds = Rounds(result.expect, fetch, replace(record, units=units), spec, gateway)
    assert rounds.links()
    return rounds, result
