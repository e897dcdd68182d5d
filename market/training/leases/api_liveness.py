"""That this API process takes calls, told to the database, so that nobody is blamed for calls that it could not take.

It is told in the background, and before a lease is judged if that is overdue: back after an outage, the first call must
not be refused for it.
"""

import threading
import time

import structlog
from fastapi.concurrency import run_in_threadpool

from market.platform.db.session import Database
from market.providers.outages.service import api_gap
from market.training.leases.expiry import report_api

_REPORTS_PER_GAP = 4


_log = structlog.get_logger(__name__)


class ApiLivenessReporter:
    """The reports of one process. May be used from several threads.

    Attributes:
        period: seconds from one report to the next.
    """

    def __init__(self, database: Database, lease_seconds: float) -> None:
        self._database = database
        self._lease_seconds = lease_seconds
        self._gap = api_gap(lease_seconds).total_seconds()
        self.period = self._gap / _REPORTS_PER_GAP
        self._reported = 0.0  # by the wall clock: the other one stands still while the host sleeps
        self._failing = False  # said once
        self._reporting = threading.Lock()

    @property
    def is_due(self) -> bool:
        """Whether the last report is so long ago that it may have been an outage."""
        return not 0 <= time.time() - self._reported < self._gap

    async def report_soon(self) -> None:
        """Report, or wait for another thread that does. What fails is tried again with the next report."""
        try:
            await run_in_threadpool(self._report)
        except Exception as error:  # without a database, say; a process that gave up would count as away for ever
            if not self._failing:
                _log.warning("cannot report that the API is up", error=str(error))
            self._failing = True

    def _report(self) -> None:
        asked = time.time()
        with self._reporting:
            if self._reported < asked:
                with self._database.transaction() as session:
                    report_api(session, self._lease_seconds)
                self._reported, self._failing = time.time(), False
