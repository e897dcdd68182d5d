"""Release of finished jobs' last checkpoint and replica states.

A job is over once a final block records it; all of its units are committed by then. Its units can be disputed for
:attr:`DisputeChain.trace_retention_seconds` after that. Files are kept for twice that time by the
chain's clock, counted from the block at which this node first saw the end. An open dispute of its units extends it.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from zoo_compute.chain.disputes import DisputeChain
from zoo_compute.node.disk.workspace import Workspace

log = logging.getLogger(__name__)
_LOOK_SECONDS = 3600.0
_PERIODS = 2


@dataclass(eq=False)
class FinishedJobs:
    """Finished jobs with kept files; ``disputed``: is a dispute of its units open."""

    workspace: Workspace
    connect: Callable[[], DisputeChain]
    disputed: Callable[[], bool]
    _next_at: float = field(default=0.0, init=False)

    @cached_property
    def _chain(self) -> DisputeChain:
        return self.connect()

    def release(self) -> None:
        """Release files that can no longer be requested; runs at most once per hour.

        Raises:
            Unreachable: the chain does not answer; try again later.
            OSError, sqlite3.Error: the disk refuses.
        """
        if time.monotonic() < self._next_at:
            return
        jobs = self.workspace.kept_jobs()
        if jobs and not self.disputed():
            final, keep_seconds = self._chain.final_block(), _PERIODS * self._chain.trace_retention_seconds
            for job_id in jobs:
                if not self._chain.is_over(job_id, final):
                    continue
                if final.timestamp > self.workspace.job_ended_at(job_id, final.timestamp) + keep_seconds:
                    self.workspace.release_job(job_id)
                    log.info("finished_job_released job=%s", job_id)
        self._next_at = time.monotonic() + _LOOK_SECONDS
