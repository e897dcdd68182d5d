"""Periodic tasks of a node.

They run outside the heartbeat thread: one of them can block for minutes, and the market counts a silent node as down.
"""

import errno
import logging
import sqlite3
import time
from collections.abc import Callable

from zoo_compute.base.errors import ZooError
from zoo_compute.node.attestation.gpu_statements import GpuSource
from zoo_compute.node.attestation.quotes import AttestationRenewal, QuoteSource, collateral_from
from zoo_compute.node.config import NodeConfig
from zoo_compute.node.disk.finished import FinishedJobs
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.disputes.defence import Disputes
from zoo_compute.node.disputes.omissions import Omissions
from zoo_compute.node.execution import hardware
from zoo_compute.node.market.calls import Market
from zoo_compute.node.payouts import Payouts

_REPEAT_SECONDS = 300.0

log = logging.getLogger(__name__)

PeriodicTask = Callable[[], None]
"""Does the work that is due. Each task keeps its own interval."""

DISK_REFUSES = (OSError, sqlite3.Error)
"""Errors of a full or failing disk, from files and from the block store's index."""


def is_disk_full(error: Exception) -> bool:
    """Return whether ``error``, one of :data:`DISK_REFUSES`, can mean a full disk."""
    if isinstance(error, sqlite3.OperationalError):
        return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def node_tasks(
    payouts: Payouts,
    workspace: Workspace,
    finished: FinishedJobs,
    *,
    disputes: Disputes | None,
    omissions: Omissions | None,
    attestation: AttestationRenewal | None,
) -> dict[str, PeriodicTask]:
    """Return a node's tasks by name, the most urgent first; None for a missing one."""
    tasks: dict[str, PeriodicTask] = {}
    if disputes is not None:
        tasks["disputes"] = disputes.watch
    if omissions is not None:
        tasks["omitted commitments"] = omissions.watch
    tasks |= {"pay": payouts.collect, "finished jobs": finished.release, "old blocks": workspace.collect}
    if attestation is not None:
        tasks["attestations"] = attestation.keep
    return tasks


def attestation_renewal(config: NodeConfig, market: Market, address: str) -> AttestationRenewal:
    """Return the task that renews the attestation of the node with this address."""
    gpus = GpuSource() if hardware.detect().gpu_count else None
    return AttestationRenewal(market, address, QuoteSource(), collateral_from(config.pccs_url), gpus)


class ErrorThrottle:
    """Logger of one condition: new texts at once, repeated ones every ``_REPEAT_SECONDS``."""

    def __init__(self) -> None:
        self._last = ""
        self._again_at = 0.0

    def warn(self, what: str) -> None:
        if what != self._last or time.monotonic() >= self._again_at:
            self._last, self._again_at = what, time.monotonic() + _REPEAT_SECONDS
            log.warning("%s", what)


def run_periodic_task(what: str, task: PeriodicTask, throttle: ErrorThrottle) -> None:
    """Run a task once. Expected errors are logged; the next run tries again."""
    try:
        task()
    except (ZooError, *DISK_REFUSES) as error:
        throttle.warn(f"task_failed task={what!r}: {error} {getattr(error, 'remedy', None) or ''}".rstrip())
