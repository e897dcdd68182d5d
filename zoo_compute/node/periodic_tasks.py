"""What a node looks after again and again beside its work.

Heartbeats wait for none of it: a claim that is not mined, or a server that keeps silent, takes minutes, and a node that
is silent for so long is down.
"""

import errno
import logging
import sqlite3
import time
from collections.abc import Callable

from zoo_compute.base.errors import ZooError
from zoo_compute.node.attestation.gpu_statements import GpuSource
from zoo_compute.node.attestation.quotes import Attesting, QuoteSource, collateral_from
from zoo_compute.node.config import NodeConfig
from zoo_compute.node.disk.finished import FinishedJobs
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.disputes.defence import Disputes
from zoo_compute.node.disputes.omissions import Omissions
from zoo_compute.node.execution import hardware
from zoo_compute.node.market.calls import Market
from zoo_compute.node.payouts import Payouts

_AGAIN_SECONDS = 300.0


log = logging.getLogger(__name__)


Chore = Callable[[], None]
"""Does what is due of something, which it knows itself."""


DISK_REFUSES = (OSError, sqlite3.Error)
"""What a full or failing disk raises here: files, and the index of the block store."""


def is_out_of_room(error: Exception) -> bool:
    """Whether the disk has no room, of :data:`DISK_REFUSES`. SQLite cannot tell that from other failures to write."""
    if isinstance(error, sqlite3.OperationalError):
        return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def chores_of(
    payouts: Payouts,
    workspace: Workspace,
    finished: FinishedJobs,
    *,
    disputes: Disputes | None,
    omissions: Omissions | None,
    attesting: Attesting | None,
) -> dict[str, Chore]:
    """A node's chores by what they look after, the most urgent first. None is not for this node."""
    chores: dict[str, Chore] = {}
    if disputes is not None:
        chores["disputes"] = disputes.watch
    if omissions is not None:
        chores["omitted commitments"] = omissions.watch
    chores |= {"pay": payouts.collect, "finished jobs": finished.release, "old blocks": workspace.collect}
    if attesting is not None:
        chores["attestations"] = attesting.keep
    return chores


def attesting_of(config: NodeConfig, market: Market, address: str) -> Attesting:
    """What keeps the attestation of the node with this address up."""
    gpus = GpuSource() if hardware.detect().gpu_count else None
    return Attesting(market, address, QuoteSource(), collateral_from(config.pccs_url), gpus)


class ErrorThrottle:
    """What stands in a node's way: logged at once if it is new, and now and then while it stays."""

    def __init__(self) -> None:
        self._told = ""
        self._again_at = 0.0

    def tell(self, what: str) -> None:
        """Log it as a warning, unless that was done a short while ago."""
        if what != self._told or time.monotonic() >= self._again_at:
            self._told, self._again_at = what, time.monotonic() + _AGAIN_SECONDS
            log.warning("%s", what)


def run_periodic_task(what: str, chore: Chore, trouble: ErrorThrottle) -> None:
    """Do a chore, also while the market is away; what fails is logged, and tried again at the next look."""
    try:
        chore()
    except ZooError as error:
        trouble.tell(f"{what} cannot be looked after: {error} {error.remedy or ''}")
    except DISK_REFUSES as error:
        trouble.tell(f"{what} cannot be looked after: {error}")
