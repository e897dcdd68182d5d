"""What other features, workers and routers may use of jobs."""

from market.jobs.aggregation import aggregate
from market.jobs.comparing import ends_apart
from market.jobs.consistency import is_doubted
from market.jobs.dispatch import dispatch, due_jobs
from market.jobs.facts import (
    CheckpointFacts,
    JobFacts,
    checkpoints_of,
    count_by_status,
    end_settlement,
    get,
    ids_of,
    note_payment,
    payers_of,
    reopen_settlement,
    set_record,
    start_settling,
)
from market.jobs.leases import create_lease, expire_replays, expire_uploads, vacate, was_busy
from market.jobs.leases import expire_due as expire_due_leases
from market.jobs.matching import (
    assign,
    busy_providers,
    cancel,
    is_at_work,
    on_job_cancelled,
    on_job_refunded,
    open_bids,
)
from market.jobs.matching import expire_due as expire_due_jobs
from market.jobs.operations import end_before_refund, end_long_pauses
from market.jobs.payment import (
    AlreadySettled,
    batch_of,
    jobs_to_settle,
    leaves_in_batches,
    payable_units,
    put_in_batch,
    strike_unit,
    take_from_batch,
    units_in_batch,
    unpaid_count,
)
from market.jobs.placing import deal
from market.jobs.planting import altered_state
from market.jobs.releasing import needs_file, release_states
from market.jobs.reservations import Reservation, reserve
from market.jobs.retention import forget_old
from market.jobs.retention_repository import rounds_of_unended
from market.jobs.slot_states import shown_bytes, starts_privately
from market.jobs.submission import on_deposit_intent, on_job_opened
from market.jobs.tree import work_leaf
from market.jobs.units import (
    AcknowledgementFacts,
    UnitFacts,
    acknowledged_unit,
    acquit_unit,
    assign_window,
    clean_units_of,
    decided_before,
    dispute_unit,
    job_units,
    mark_checking,
    outstanding_acknowledgements,
    pass_unit,
    reject_unit,
    unit_facts,
    units_at,
    unverified_units_of,
    window_leaves,
    window_units,
    windowless_units,
)
from market.jobs.uploads import discard_stale as discard_stale_uploads
from market.jobs.uploads import release_disputed as release_disputed_uploads
from market.jobs.validation import jobs_to_validate, validate
from market.jobs.why import Rounds

__all__ = [
    "AcknowledgementFacts",
    "AlreadySettled",
    "CheckpointFacts",
    "JobFacts",
    "Reservation",
    "Rounds",
    "UnitFacts",
    "acknowledged_unit",
    "acquit_unit",
    "aggregate",
    "altered_state",
    "assign",
    "assign_window",
    "batch_of",
    "busy_providers",
    "cancel",
    "checkpoints_of",
    "clean_units_of",
    "count_by_status",
    "create_lease",
    "deal",
    "decided_before",
    "discard_stale_uploads",
    "dispatch",
    "dispute_unit",
    "due_jobs",
    "end_before_refund",
    "end_long_pauses",
    "end_settlement",
    "ends_apart",
    "expire_due_jobs",
    "expire_due_leases",
    "expire_replays",
    "expire_uploads",
    "forget_old",
    "get",
    "ids_of",
    "is_at_work",
    "is_doubted",
    "job_units",
    "jobs_to_settle",
    "jobs_to_validate",
    "leaves_in_batches",
    "mark_checking",
    "needs_file",
    "note_payment",
    "on_deposit_intent",
    "on_job_cancelled",
    "on_job_opened",
    "on_job_refunded",
    "open_bids",
    "outstanding_acknowledgements",
    "pass_unit",
    "payable_units",
    "payers_of",
    "put_in_batch",
    "reject_unit",
    "release_disputed_uploads",
    "release_states",
    "reopen_settlement",
    "reserve",
    "rounds_of_unended",
    "set_record",
    "shown_bytes",
    "start_settling",
    "starts_privately",
    "strike_unit",
    "take_from_batch",
    "unit_facts",
    "units_at",
    "units_in_batch",
    "unpaid_count",
    "unverified_units_of",
    "vacate",
    "validate",
    "was_busy",
    "window_leaves",
    "window_units",
    "windowless_units",
    "work_leaf",
]
