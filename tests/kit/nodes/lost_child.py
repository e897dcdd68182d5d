"""Training child that loses one process, once, in an inner step of a unit.

Arguments: PROFILE MEMORY_BYTES PROCESSES RANK STEP (from 1).
"""

import os
import signal
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from unittest.mock import patch

from torch import Tensor

from training_gym.optimise.processes import ReplicatedProcesses
from zoo_compute.node.execution import child

LOST = Path("lost")
"""In the child's directory: a process has been lost, so the next child loses none."""


def lose(rank: int, step: int) -> None:
    """End process ``rank`` where it would send the losses of its step."""
    send = ReplicatedProcesses.losses
    steps = count(1)

    def losses(self: ReplicatedProcesses, own: Sequence[float], device: str) -> Tensor:
        if self.rank == rank and next(steps) == step and not LOST.exists():
            LOST.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return send(self, own, device)

    patch.object(ReplicatedProcesses, "losses", losses).start()


if __name__ == "__main__":
    lose(rank=int(sys.argv[4]), step=int(sys.argv[5]))
    child.main()
