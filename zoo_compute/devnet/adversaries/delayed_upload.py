"""Honest provider node that delays one upload after its commitment.

The node keeps its lease and its other work. The demonstration ends the delay by a file, independent of the machine's
speed.
"""

import logging
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from zoo_compute.devnet.adversaries.adversary import node_arguments, node_config
from zoo_compute.node.process import run_node
from zoo_compute.node.work.held_lease import HeldLease
from zoo_compute.node.work.worker import UnitResourceUsage, Worker
from zoo_compute.terminal.output import log_to_stderr

_POLL_SECONDS = 0.1
_RELEASE = "go-on"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DelayedUploadWorker(Worker):
    """Worker that delays units of ``from_round`` and later until the file ``until`` exists."""

    from_round: int
    until: Path

    def _deliver(self, held: HeldLease, result: dict[str, Any], salt: bytes, effort: UnitResourceUsage) -> None:
        if held.lease.task["round"] >= self.from_round and not self.until.exists():
            log.warning("upload_delayed round=%d", held.lease.task["round"])
            while not self.until.exists():
                held.check()
                self.link.yield_to_urgent()  # raises when the node stops
                time.sleep(_POLL_SECONDS)
        super()._deliver(held, result, salt, effort)


def release(state_dir: Path) -> None:
    """End the delay of the node with this state directory."""
    (state_dir / _RELEASE).touch()


def main() -> None:
    """Run the node until it is stopped."""
    parser = node_arguments(__doc__)
    parser.add_argument("--from-round", type=int, required=True)
    arguments = parser.parse_args()
    log_to_stderr()
    worker = partial(DelayedUploadWorker, from_round=arguments.from_round, until=arguments.state_dir / _RELEASE)
    run_node(node_config(arguments), make_worker=worker)


if __name__ == "__main__":
    main()
