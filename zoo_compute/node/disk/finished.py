"""Releasing what a node keeps of jobs that are over: their last checkpoint and slot states, which no lease releases.

A job is over once a final block says so; all of its units were committed to before. From then on they can be disputed
for as long as :attr:`DisputeChain.keep_seconds`, and a dispute that is opened in the last moment takes less than that.
So everything is kept for twice that time by the chain's clock, counted from the block by which this node first saw the
end, and for as long as any dispute of a unit of this node is not over.
"""

import logging
import time
from collections.abc import Callable

from zoo_compute.chain.jobs import JobChain
from zoo_compute.node.disk.workspace import Workspace

log = logging.getLogger(__name__)


_LOOK_SECONDS = 3600.0


_PERIODS = 2


class FinishedJobs:
    """The jobs of which a node keeps something.

    Args:
        connect: gives the chain; called when there is such a job.
        disputed: whether a dispute of a unit of this node is not over.
    """

    def __init__(self, workspace: Workspace, connect: Callable[[], JobChain], disputed: Callable[[], bool]) -> None:
        self._workspace = workspace
        self._connect = connect
        self._disputed = disputed
        self._chain: JobChain | None = None
        self._next_at = 0.0

    def release(self) -> None:
        """Release what nobody can ask for any more; unless looked at within the hour.

        Raises:
            Unreachable: the chain does not answer; try again later.
            OSError, sqlite3.Error: the disk refuses.
        """
        if time.monotonic() < self._next_at:
            return
        jobs = self._workspace.kept_jobs()
        if jobs and not self._disputed():
            self._chain = self._chain or self._connect()
            final, keep_seconds = self._chain.final_block(), _PERIODS * self._chain.keep_seconds
            for job_id in jobs:
                if not self._chain.is_over(job_id, final):
                    continue
                if final.timestamp > self._workspace.over_since(job_id, final.timestamp) + keep_seconds:
                    self._workspace.release_job(job_id)
                    log.info("job %s is over, and can be disputed no more: what was kept of it is released", job_id)
        self._next_at = time.monotonic() + _LOOK_SECONDS
