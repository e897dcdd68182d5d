"""Record API liveness in the database, in the background and before calls with a lease.

Leases that expire during an API outage are extended and do not count against nodes. An overdue report precedes each
lease check: the first call after an outage must not fail because of it.
"""

import threading
import time
from typing import Annotated

import structlog
from fastapi import Depends, Path
from fastapi.concurrency import run_in_threadpool

from market.platform.db.session import Database
from market.platform.http.deps import ServicesDep
from market.providers.outages.service import api_gap
from market.training.leases.expiry import report_api

_REPORTS_PER_GAP = 4

_log = structlog.get_logger(__name__)


class ApiLivenessReporter:
    """Liveness reports of one process, ``period`` seconds apart. Thread-safe."""

    def __init__(self, database: Database, lease_seconds: float) -> None:
        self._database = database
        self._lease_seconds = lease_seconds
        self._gap = api_gap(lease_seconds).total_seconds()
        self.period = self._gap / _REPORTS_PER_GAP
        self._reported = 0.0  # wall clock: the monotonic clock stops while the host sleeps
        self._failing = False  # logged once
        self._reporting = threading.Lock()

    @property
    def is_due(self) -> bool:
        """True if the last report is old enough to count as an outage."""
        return not 0 <= time.time() - self._reported < self._gap

    async def report_soon(self) -> None:
        """Report, or wait for another thread that does. The next report retries a failed one."""
        try:
            await run_in_threadpool(self._report)
        except Exception as error:  # a reporter that stopped would count as an outage for ever
            if not self._failing:
                _log.warning("api_report_failed", error=str(error))
            self._failing = True

    def _report(self) -> None:
        asked = time.time()
        with self._reporting:
            if self._reported < asked:
                with self._database.transaction() as session:
                    report_api(session, self._lease_seconds)
                self._reported, self._failing = time.time(), False


async def _report_liveness(services: ServicesDep) -> None:
    """Record API liveness first, so that an outage extends leases before they are checked."""
    if services.part(ApiLivenessReporter).is_due:
        await services.part(ApiLivenessReporter).report_soon()


REPORTS_LIVENESS = Depends(_report_liveness)
"""Dependency of routes that check leases."""

LeaseId = Annotated[str, Path(max_length=36, description="The lease's id, as POST /v1/leases/next gave it.")]
