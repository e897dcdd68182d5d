"""Access to jobs.

The payer, admins of the market and admins of the job's organisation may view and change a job. Members of that
organisation and the market's treasury role may view it.
"""

from sqlalchemy.orm import Session

from market.accounts.errors import NotPermitted
from market.accounts.organisations import service as organisations
from market.accounts.organisations.service import Role
from market.accounts.service import Principal
from market.jobs import repository
from market.jobs.errors import JobNotFound
from market.jobs.models import Job


def visible_job(session: Session, principal: Principal, job_id: str) -> Job:
    """Return a copy of a job that the caller may view. Raises JobNotFound."""
    return _require_visible(session, principal, job_id, repository.job_to_read(session, job_id))


def lock_own_job(session: Session, principal: Principal, job_id: str) -> Job:
    """Lock and return a job that the caller may change.

    Raises:
        JobNotFound: no such job, or the caller may not view it.
        NotPermitted: the caller may only view it.
    """
    job = _require_visible(session, principal, job_id, repository.lock_job(session, job_id))
    if principal.address == job.payer or principal.is_admin:
        return job
    role = organisations.role_in(session, job.organisation_id, principal.address)
    if role is None or role < Role.ADMIN:
        raise NotPermitted("Only the payer and admins may change this job.", field="job_id")
    return job


def _require_visible(session: Session, principal: Principal, job_id: str, job: Job | None) -> Job:
    is_visible = job is not None and (
        principal.address == job.payer
        or principal.sees_all_jobs
        or organisations.role_in(session, job.organisation_id, principal.address) is not None
    )
    if job is None or not is_visible:
        raise JobNotFound(f"You have no job {job_id}.")
    return job
