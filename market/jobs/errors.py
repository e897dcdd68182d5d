"""Refusals of jobs and leases; each code is stable and says which field is at fault and what to do."""

from market.platform.http.problem import MarketError


class JobNotFound(MarketError):
    status = 404
    code = "job-not-found"
    title = "There is no such job"
    default_remedy = "Check the id; GET /v1/jobs lists your jobs."
