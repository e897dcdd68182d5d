"""Copies of checkpoints and of published replica states, proved byte for byte.

The proof of a ``pin`` lease with the task ``{"checkpoint_cid", "round", "nonce", "cids", "release"}`` is::

    SHA2-256( nonce || file(cids[0]) || file(cids[1]) || ... )        as 0x hex

``nonce`` is 32 fresh random bytes (0x hex in the task). ``file(cid)`` is the whole content of the file, without the
framing of IPFS blocks. ``cids`` are, in this order: the manifest, the model, and the outer state, the update and the
aggregation record if the manifest names them. Replica states are not included, since they are uploaded later or not at
all (:mod:`market.training.replication.slot_state_uploads`). The market reads the same files from storage and compares.
A node keeps the files until a later lease names the checkpoint in ``release`` (:func:`releasable`).

Each published replica state is pinned by as many nodes as a checkpoint, but separately. A node keeps a few states, not
one of every slot.
Lease and proof are as for a checkpoint, over the state's CID. A state is released once a newer state of the slot and a
newer checkpoint have proven holders. Storage then drops it too (:mod:`market.training.retention.service`).
"""

import hashlib
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
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
from market.training.checkpoints.models import Checkpoint, Pin, StatePin
from market.training.checkpoints.service import kept_checkpoints, lacks_pins
from market.training.leases.models import Lease
from market.training.leases.schemas import LeaseKind
from market.training.leases.service import create_lease
from market.training.replication import repository as replication_repository
from market.training.units import repository as units_repository
from zoo_protocol.hashing import from_hex, to_hex

MAX_ATTEMPTS = 3
"""Pin leases for one checkpoint or state that a node may fail."""

_NO_ATTEMPTS: tuple[set[str], Counter[str]] = (set(), Counter())


def releasable(wanted: Sequence[Checkpoint], holders: Mapping[int, Sequence[str]], redundancy: int) -> list[str]:
    """Return checkpoints that nodes may drop: with ``redundancy`` holders, as a newer one.

    ``wanted`` has the checkpoints to keep, by ascending round; ``holders`` addresses by checkpoint id.
    """
    proven = [checkpoint for checkpoint in wanted if len(set(holders.get(checkpoint.id, []))) >= redundancy]
    return [checkpoint.cid for checkpoint in proven[:-1]]


def request_checkpoint_pins(session: Session, settings: Settings, job: Job) -> None:
    """Offer missing pin leases of the job's checkpoints, to its own nodes first."""
    if not lacks_pins(session, job):
        return
    nodes = _nodes(session, settings, job)
    holders = checkpoints_repository.pins_of_job(session, job.id)
    attempts = replication_repository.checkpoint_pin_attempts(session, job.id)
    kept = kept_checkpoints(session, job)
    release = releasable(kept, holders, job.redundancy)
    for checkpoint in kept:
        held = set(holders.get(checkpoint.id, []))
        for node in _candidates(job, nodes, held, attempts.get(checkpoint.id, _NO_ATTEMPTS)):
            task = {"checkpoint_cid": checkpoint.cid, "round": checkpoint.round, "cids": checkpoint.file_cids}
            _offer(session, settings, job, node, task | {"release": release}, checkpoint_id=checkpoint.id)


def request_state_pins(session: Session, settings: Settings, job: Job) -> None:
    """Offer missing pin leases of each slot's newest published state; own node last."""
    newest = replication_repository.newest_published(session, job.id)
    holders = replication_repository.holders(session, [unit.id for unit in newest])
    lacking = [unit for unit in newest if len(holders.get(unit.id, ())) < job.redundancy]
    if not lacking:
        return
    nodes = _nodes(session, settings, job)
    attempts = replication_repository.state_pin_attempts(session, [unit.id for unit in lacking])
    release = replication_repository.pins_to_release(session, job.id, job.redundancy)
    for unit in lacking:
        start = unit.slot % len(nodes) if nodes else 0  # slots start at different nodes
        rotated, held = [*nodes[start:], *nodes[:start]], holders.get(unit.id, set())
        for node in _candidates(job, rotated, held, attempts.get(unit.id, _NO_ATTEMPTS), last=unit.provider):
            task = {
                "checkpoint_cid": unit.slot_state_cid,
                "round": unit.slot_state_round,
                "slot": unit.slot,
                "cids": [unit.slot_state_cid],
                "release": release.get(node, []),
            }
            _offer(session, settings, job, node, task, unit_id=unit.id)


def _nodes(session: Session, settings: Settings, job: Job) -> list[str]:
    """Return the nodes that can be asked for a copy, the job's own first."""
    offers = providers.open_offers(session, settings, job.tier_id, utc_now())
    own = units_repository.nodes_of_job(session, job.id)
    return list(dict.fromkeys([*own, *(offer.provider for offer in offers)]))


def _candidates(
    job: Job,
    nodes: Sequence[str],
    held: AbstractSet[str],
    attempts: tuple[AbstractSet[str], Mapping[str, int]],
    last: str | None = None,
) -> list[str]:
    """Return the missing number of ``nodes``, fewest failures first; ``last`` after its equals.

    Args:
        held: nodes with a proven copy.
        attempts: nodes with an open lease, and failed leases by node.
    """
    running, failed = attempts
    taken = running | held
    able = [node for node in nodes if node not in taken and failed.get(node, 0) < MAX_ATTEMPTS]
    return sorted(able, key=lambda node: (failed.get(node, 0), node == last))[: max(job.redundancy - len(taken), 0)]


def _offer(
    session: Session,
    settings: Settings,
    job: Job,
    node: str,
    task: dict[str, Any],
    *,
    checkpoint_id: int | None = None,
    unit_id: int | None = None,
) -> None:
    """Offer a ``pin`` lease with a fresh nonce, of a checkpoint or of a unit's replica state."""
    create_lease(
        session,
        kind=LeaseKind.PIN,
        holder=node,
        job_id=job.id,
        task=task | {"nonce": to_hex(secrets.token_bytes(32))},
        seconds=settings.lease_seconds,
        checkpoint_id=checkpoint_id,
        unit_id=unit_id,
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
    """Record the holder's proven copy of ``size`` bytes; delete its pins of released states."""
    task = lease.task
    seen, proved = {"round": task["round"]}, {"provider": lease.holder, "nonce": task["nonce"], "proof": proof}
    if lease.unit_id is None:
        session.add(Pin(checkpoint_id=lease.checkpoint_id, **proved))
    else:
        replication_repository.delete_pins(session, lease.holder, lease.job_id, task["release"])
        session.add(StatePin(unit_id=lease.unit_id, **proved))
        seen["slot"] = task["slot"]
    reliability.record_served_bytes(session, lease.holder, size, utc_now())
    kind = "pin" if lease.unit_id is None else "slot_state_pin"
    emit(session, lease.job_id, kind, {**seen, "cid": task["checkpoint_cid"], "provider": lease.holder})
