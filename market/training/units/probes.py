"""Probes of a job's shapes, recorded with the first unit of each node."""

from sqlalchemy.orm import Session

from market.domain.nodes import probes
from market.jobs import repository as jobs_repository
from market.training.units import repository


def dissenting_nodes(session: Session, job_id: str) -> set[str]:
    """Return the nodes that compute the job's shapes otherwise than most of its nodes."""
    found = repository.probes(session, job_id)
    holders = {slot.provider for slot in jobs_repository.slots(session, job_id) if slot.provider is not None}
    return probes.dissenting_nodes(found, is_complete=holders <= found.keys())
