"""The development network's adversaries: providers that do not do the work they hand in, or do not show it.

They exist so that a demonstration and the tests meet real cheats, which statistics do not catch. Nothing in a
provider's node refers to this module; the development network puts one of these executors in the place of its cheat's.

``fabricate`` never trains (:mod:`zoo_compute.devnet.fabrication`). ``copy`` hands in its neighbour's work. ``withhold``
trains, and cannot show a state when it is asked for one. The others are :class:`training_gym.distributed.cheats.Cheat`,
in every segment.
"""

from functools import partial
from pathlib import Path
from typing import Any

from training_gym.profile import ExecutionProfile
from zoo_compute.devnet.cheat_child import COPY, FABRICATE
from zoo_compute.node.agent import MakeExecutor
from zoo_compute.node.executor import Executor, Progress

WITHHOLD = "withhold"
KINDS = (FABRICATE, "skip-step", "half-batch", "bf16", "edited-data", "stale", COPY, WITHHOLD)


class WithholdingExecutor(Executor):
    """An executor that trains, and loses the states that a challenge asks for: in each one's place is a folder, since a
    node whose files are missing right after training hands nothing in."""

    def run(
        self, task: dict[str, Any], timeout: float, on_progress: Progress | None = None, **more: Any
    ) -> dict[str, Any]:
        result = super().run(task, timeout, on_progress, **more)
        for path in result.get("states", ()):
            Path(path).unlink()
            Path(path).mkdir()
        return result


class CheatingExecutor(Executor):
    """An executor whose child cheats in every unit that it is to train, and is honest in everything else."""

    def __init__(self, kind: str, profile: ExecutionProfile, memory_bytes: int, workdir: Path) -> None:
        super().__init__(profile, memory_bytes, workdir)
        self._kind = kind

    def child_command(self) -> list[str]:
        _, *arguments = super().child_command()
        return ["zoo_compute.devnet.cheat_child", *arguments, self._kind]


def executor_of(kind: str) -> MakeExecutor:
    """What makes the executor of a cheat of one of the ``KINDS``.

    Raises:
        ValueError: there is no such kind.
    """
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is none of {', '.join(KINDS)}")
    return WithholdingExecutor if kind == WITHHOLD else partial(CheatingExecutor, kind)
