"""Copies of published replica states on distinct nodes.

Each state is pinned by as many nodes as a checkpoint, but separately: a node keeps a few states, not one of every slot.
Lease and proof are as for a checkpoint (:mod:`market.training.replication.checkpoint_pins`), over the state's CID. A
state is released once a newer state of the slot and a newer checkpoint have proven holders. Storage then drops it too
(:mod:`market.training.retention.service`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from market.jobs.models import Job
from market.platform.db.base import utc_now
from market.platform.events.service import emit
from market.providers import service as providers
from market.providers.record import reliability
from market.settings import Settings
from market.training.checkpoints.models import StatePin
from market.training.leases.models import Lease
from market.training.replication import repository as replication_repository
from market.training.replication.checkpoint_pins import MAX_ATTEMPTS, offer_pin_lease
from market.training.units import repository as units_repository


def request_pins(session: Session, settings: Settings, job: Job) -> None:
    """Offer missing pin leases of each slot's newest published state; own node last."""
    newest = replication_repository.newest_published(session, job.id)
    holders = replication_repository.holders(session, [unit.id for unit in newest])
    lacking = [unit for unit in newest if len(holders.get(unit.id, ())) < job.redundancy]
    if not lacking:
        return
    attempts = replication_repository.state_pin_attempts(session, [unit.id for unit in lacking])
    release = replication_repository.pins_to_release(session, job.id, job.redundancy)
    offers = providers.open_offers(session, settings, job.tier_id, utc_now())
    own = units_repository.nodes_of_job(session, job.id)
    nodes = list(dict.fromkeys([*own, *(offer.provider for offer in offers)]))
    for unit in lacking:
        running, failed = attempts.get(unit.id, (set(), Counter()))
        taken = running | holders.get(unit.id, set())
        for node in _best(nodes, unit.slot, unit.provider, taken, failed)[: max(job.redundancy - len(taken), 0)]:
            task = {
                "checkpoint_cid": unit.slot_state_cid,
                "round": unit.slot_state_round,
                "slot": unit.slot,
                "cids": [unit.slot_state_cid],
                "release": release.get(node, []),
            }
            offer_pin_lease(session, settings, job, node, task, unit_id=unit.id)


def _best(nodes: Sequence[str], slot: int, own: str, taken: set[str], failed: Mapping[str, int]) -> list[str]:
    """Return candidates to pin a slot's state, best first; slots start at different nodes."""
    rotated = [*nodes[slot % len(nodes) :], *nodes[: slot % len(nodes)]] if nodes else []
    able = [node for node in rotated if node not in taken and failed.get(node, 0) < MAX_ATTEMPTS]
    return sorted(able, key=lambda node: (failed.get(node, 0), node == own))


def record(session: Session, lease: Lease, proof: str, size: int) -> None:
    """Record the holder's proven copy of ``size`` bytes; delete its released pins."""
    assert lease.unit_id is not None  # only checkpoint pins have none
    replication_repository.delete_pins(session, lease.holder, lease.job_id, lease.task["release"])
    session.add(StatePin(unit_id=lease.unit_id, provider=lease.holder, nonce=lease.task["nonce"], proof=proof))
    reliability.record_served_bytes(session, lease.holder, size, utc_now())
    seen = {"round": lease.task["round"], "slot": lease.task["slot"], "cid": lease.task["cids"][0]}
    emit(session, lease.job_id, "slot_state_pin", seen | {"provider": lease.holder})
