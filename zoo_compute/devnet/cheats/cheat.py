"""The development network's adversaries: providers that do not do the work they hand in, or do not show it.

They exist so that a demonstration and the tests meet real cheats, which statistics do not catch. Nothing in a
provider's node refers to this module; the development network puts one of these executors in the place of its cheat's.

``fabricate`` never trains (:mod:`zoo_compute.devnet.cheats.fabrication`). ``copy`` hands in its neighbour's work.
``withhold``
and ``refuse`` train, and when they are asked for a state, the one shows none that the market takes, and says nothing;
the other says that it has none. The others are :class:`training_gym.verify.adversaries.Attack`,
in every segment.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from training_gym.runtime.profile import ExecutionProfile
from zoo_compute.devnet.cheats.child import COPY, FABRICATE
from zoo_compute.node.agent import MakeExecutor
from zoo_compute.node.execution.executor import Executor, Progress

WITHHOLD, REFUSE = "withhold", "refuse"
KINDS = (FABRICATE, "skip-step", "half-batch", "bf16", "edited-data", "stale", COPY, WITHHOLD, REFUSE)


class StateLosingExecutor(Executor):
    """An executor that trains, and loses the states that a challenge asks for.

    Args:
        lose: what becomes of a state's file, right after training.
    """

    def __init__(
        self, lose: Callable[[Path], None], profile: ExecutionProfile, memory_bytes: int, workdir: Path
    ) -> None:
        super().__init__(profile, memory_bytes, workdir)
        self._lose = lose

    def run(
        self, task: dict[str, Any], timeout: float, on_progress: Progress | None = None, **more: Any
    ) -> dict[str, Any]:
        result = super().run(task, timeout, on_progress, **more)
        for path in result.get("states", ()):
            self._lose(Path(path))
        return result


def _cut(path: Path) -> None:
    """The market does not take the rest, and the node then lets its lease run out."""
    os.truncate(path, path.stat().st_size // 2)


def _remove(path: Path) -> None:
    """A folder in its place, since a node whose files are missing right after training hands nothing in. What cannot be
    read when it is asked for, the node gives back with a code."""
    path.unlink()
    path.mkdir()


_LOSERS = {WITHHOLD: _cut, REFUSE: _remove}


class CheatingExecutor(Executor):
    """An executor whose child cheats in every unit that it is to train, and is honest in everything else."""

    def __init__(self, kind: str, profile: ExecutionProfile, memory_bytes: int, workdir: Path) -> None:
        super().__init__(profile, memory_bytes, workdir)
        self._kind = kind

    def child_command(self) -> list[str]:
        _, *arguments = super().child_command()
        return ["zoo_compute.devnet.cheats.child", *arguments, self._kind]


def executor_of(kind: str) -> MakeExecutor:
    """What makes the executor of a cheat of one of the ``KINDS``.

    Raises:
        ValueError: there is no such kind.
    """
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is none of {', '.join(KINDS)}")
    if kind in _LOSERS:
        return partial(StateLosingExecutor, _LOSERS[kind])
    return partial(CheatingExecutor, kind)
