"""Checkpoint copies on distinct nodes, each proved byte for byte.

The proof of a ``pin`` lease with the task ``{"checkpoint_cid", "round", "nonce", "cids", "release"}`` is::

    SHA2-256( nonce || file(cids[0]) || file(cids[1]) || ... )        as 0x hex

``nonce`` is 32 fresh random bytes (0x hex in the task). ``file(cid)`` is the whole content of the file, without the
framing of IPFS blocks. ``cids`` are, in this order: the manifest, the model, and the outer state, the update and the
aggregation record if the manifest names them. Replica states are not included, since they are uploaded later or not at
all (:mod:`market.training.replication.slot_state_uploads`). The market reads the same files from storage and compares.
A node keeps the files until a later lease names the checkpoint in ``release`` (:func:`releasable`).
"""

import hashlib
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from market.jobs.models import Job
from market.platform.db.base import utc_now
from market.platform.events.service import emit
from market.platform.storage.client import Storage
from market.providers import service as providers
from market.providers.record import reliability
from market.settings import Settings
from market.training.checkpoints import repository as checkpoints_repository
from market.training.checkpoints.models import Checkpoint, Pin
from market.training.checkpoints.service import is_kept, missing_pins
from market.training.leases.models import Lease
from market.training.leases.schemas import LeaseKind
from market.training.leases.service import create_lease
from market.training.replication import repository as replication_repository
from market.training.units import repository as units_repository
from zoo_protocol.hashing import from_hex, to_hex

MAX_ATTEMPTS = 3
"""Pin leases for one checkpoint that a node may fail."""


def releasable(wanted: Sequence[Checkpoint], holders: Mapping[int, Sequence[str]], redundancy: int) -> list[str]:
    """Return checkpoints that nodes may drop: with ``redundancy`` holders, as a newer one.

    ``wanted`` has the checkpoints to keep, by ascending round; ``holders`` addresses by checkpoint id.
    """
    proven = [checkpoint for checkpoint in wanted if len(set(holders.get(checkpoint.id, []))) >= redundancy]
    return [checkpoint.cid for checkpoint in proven[:-1]]


def request_pins(session: Session, settings: Settings, job: Job) -> None:
    """Offer missing pin leases of the job's checkpoints, to its own nodes first."""
    missing = missing_pins(session, job)
    if not missing:
        return
    offers = providers.open_offers(session, settings, job.tier_id, utc_now())
    own = units_repository.nodes_of_job(session, job.id)
    nodes = list(dict.fromkeys([*own, *(offer.provider for offer in offers)]))
    holders = checkpoints_repository.pins_of_job(session, job.id)
    attempts = replication_repository.checkpoint_pin_attempts(session, job.id)
    checkpoints = checkpoints_repository.checkpoints(session, job.id)
    release = releasable([one for one in checkpoints if is_kept(job, one)], holders, job.redundancy)
    for checkpoint in checkpoints:
        running, failed = attempts.get(checkpoint.id, (set(), Counter()))
        wanted = missing.get(checkpoint.id, 0) - len(running)
        taken = running | set(holders.get(checkpoint.id, []))
        candidates = [node for node in nodes if node not in taken and failed[node] < MAX_ATTEMPTS]
        candidates.sort(key=lambda node: failed[node])
        for node in candidates[: max(wanted, 0)]:
            task = {"checkpoint_cid": checkpoint.cid, "round": checkpoint.round, "cids": checkpoint.file_cids}
            offer_pin_lease(session, settings, job, node, task | {"release": release}, checkpoint_id=checkpoint.id)


def offer_pin_lease(
    session: Session,
    settings: Settings,
    job: Job,
    node: str,
    task: dict[str, Any],
    *,
    checkpoint_id: int | None = None,
    unit_id: int | None = None,
) -> None:
    """Offer a ``pin`` lease with a fresh nonce for a checkpoint or for a unit's replica state."""
    create_lease(
        session,
        kind=LeaseKind.PIN,
        holder=node,
        job_id=job.id,
        task=task | {"nonce": to_hex(secrets.token_bytes(32))},
        checkpoint_id=checkpoint_id,
        unit_id=unit_id,
        seconds=settings.lease_seconds,
    )


def pin_proof(storage: Storage, nonce: str, cids: Sequence[str]) -> tuple[str, int]:
    """Return a holder's expected proof of the files (0x hex), and their bytes.

    The files have no size limit here: they are the market's own, or were measured at delivery.
    """
    digest, size = hashlib.sha256(from_hex(nonce)), 0
    for cid in cids:
        for piece in storage.open_stream(cid, max_bytes=2**63):
            digest.update(piece)
            size += len(piece)
    return to_hex(digest.digest()), size


def record_pin(session: Session, lease: Lease, proof: str, size: int) -> None:
    assert lease.checkpoint_id is not None
    session.add(Pin(checkpoint_id=lease.checkpoint_id, provider=lease.holder, nonce=lease.task["nonce"], proof=proof))
    reliability.record_served_bytes(session, lease.holder, size, utc_now())
    seen = {"round": lease.task["round"], "cid": lease.task["checkpoint_cid"], "provider": lease.holder}
    emit(session, lease.job_id, "pin", seen)
