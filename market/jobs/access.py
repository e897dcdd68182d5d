"""Who may see a job, and who may act on it.

Its payer may do both, as may admins of the market and of the job's organisation. Every member of that organisation and
the market's treasury role may see it.
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
    """A job that the caller may see: a copy to read.

    Raises:
        JobNotFound: there is none, or it is somebody else's.
    """
    return _require_visible(session, principal, job_id, repository.job_to_read(session, job_id))


def lock_own_job(session: Session, principal: Principal, job_id: str) -> Job:
    """A job that the caller may act on, locked.

    Raises:
        JobNotFound: there is none, or it is somebody else's.
        NotPermitted: the caller may only see it.
    """
    job = _require_visible(session, principal, job_id, repository.lock_job(session, job_id))
    if principal.address == job.payer or principal.is_admin:
        return job
    role = organisations.role_in(session, job.organisation_id, principal.address)
    if role is None or role < Role.ADMIN:
        raise NotPermitted("only its payer and admins may act on this job", field="job_id")
    return job


def _require_visible(session: Session, principal: Principal, job_id: str, job: Job | None) -> Job:
    seen = job is not None and (
        principal.address == job.payer
        or principal.sees_all_jobs
        or organisations.role_in(session, job.organisation_id, principal.address) is not None
    )
    if job is None or not seen:
        raise JobNotFound(f"You have no job {job_id}.")
    return job
