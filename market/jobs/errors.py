"""Errors of jobs."""

from market.platform.http.problem import MissingResource


class JobNotFound(MissingResource):
    code = "job-not-found"
    title = "There is no such job"
    default_remedy = "Check the id. `zoo-compute job list` (GET /v1/jobs) lists your jobs."
