"""What other features, workers and routers may use of jobs."""

from market.jobs.aggregation import aggregate
from market.jobs.dispatch import dispatch, due_jobs
from market.jobs.facts import (
    CheckpointFacts,
    JobFacts,
    checkpoints_of,
    count_by_status,
    finish_settlement,
    get,
    payers_of,
    reopen_settlement,
    set_record,
    start_settling,
)
from market.jobs.leases import create_lease, vacate
from market.jobs.leases import expire_due as expire_due_leases
from market.jobs.matching import assign, busy_providers, cancel, on_job_cancelled, open_bids
from market.jobs.matching import expire_due as expire_due_jobs
from market.jobs.operations import end_long_pauses
from market.jobs.submission import on_deposit_intent, on_job_opened
from market.jobs.units import (
    UnitFacts,
    assign_window,
    clean_units_of,
    job_units,
    mark_checking,
    pass_unit,
    reject_unit,
    unit_facts,
    unverified_units_of,
    window_units,
    windowless_units,
)

__all__ = [
    "CheckpointFacts",
    "JobFacts",
    "UnitFacts",
    "aggregate",
    "assign",
    "assign_window",
    "busy_providers",
    "cancel",
    "checkpoints_of",
    "clean_units_of",
    "count_by_status",
    "create_lease",
    "dispatch",
    "due_jobs",
    "end_long_pauses",
    "expire_due_jobs",
    "expire_due_leases",
    "finish_settlement",
    "get",
    "job_units",
    "mark_checking",
    "on_deposit_intent",
    "on_job_cancelled",
    "on_job_opened",
    "open_bids",
    "pass_unit",
    "payers_of",
    "reject_unit",
    "reopen_settlement",
    "set_record",
    "start_settling",
    "unit_facts",
    "unverified_units_of",
    "vacate",
    "window_units",
    "windowless_units",
]
