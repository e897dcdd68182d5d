"""An honest node that something holds up once between its commitment and its upload, as an uplink that fails would.

Its lease is kept and all its other work goes on. Started by the devnet, so that a demonstration has a late payload
without guessing how long a machine takes: the node is held up until the demonstration makes a file.
"""

import logging
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from zoo_compute.devnet.cheats.arguments import config_of, node_arguments
from zoo_compute.node.serving import serve
from zoo_compute.node.work.effort import UnitResourceUsage
from zoo_compute.node.work.held_lease import HeldLease
from zoo_compute.node.work.worker import Worker
from zoo_compute.terminal.output import log_to_stderr

_LOOK_SECONDS = 0.1
_RELEASE = "go-on"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DelayedUploadWorker(Worker):
    """Delivers no unit of ``from_round`` or later until there is the file ``until``."""

    from_round: int
    until: Path

    def _deliver(self, held: HeldLease, result: dict[str, Any], salt: bytes, effort: UnitResourceUsage) -> None:
        if held.lease.task["round"] >= self.from_round and not self.until.exists():
            log.warning("held up with the unit of round %d", held.lease.task["round"])
            while not self.until.exists():
                held.check()
                self.link.yield_to_urgent()  # ends this if the node is told to stop
                time.sleep(_LOOK_SECONDS)
        super()._deliver(held, result, salt, effort)


def release(state_dir: Path) -> None:
    """Let the node with this state directory deliver, from now on."""
    (state_dir / _RELEASE).touch()


def main() -> None:
    """Run the node until it is stopped."""
    parser = node_arguments(__doc__)
    parser.add_argument("--from-round", type=int, required=True)
    arguments = parser.parse_args()
    log_to_stderr()
    worker = partial(DelayedUploadWorker, from_round=arguments.from_round, until=arguments.state_dir / _RELEASE)
    serve(config_of(arguments), make_worker=worker)


if __name__ == "__main__":
    main()
