"""The devnet's adversary as a process: a provider node with a dishonest executor.

- ``fabricate`` makes up a result without training (:mod:`zoo_compute.devnet.adversaries.fabrication`).
- ``fabricate-adapters`` does so with adapters, and trains whole models honestly.
- ``lazy`` trains honestly in even rounds, and omits steps in odd ones.
- ``copy`` delivers the result of another replica.
- ``withhold`` trains, then misses the reveal of sampled states.
- ``refuse`` trains, then declines the reveal.
- Other kinds are :class:`training_gym.verify.adversaries.Attack` in every segment.
"""

import argparse
import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from training_gym.runtime.profile import ExecutionProfile
from zoo_compute.base.amounts import parse_zen
from zoo_compute.devnet.adversaries.child import COPY, FABRICATE, FABRICATE_ADAPTERS, LAZY
from zoo_compute.node.config import NodeConfig
from zoo_compute.node.execution.executor import TASK_TIMEOUT_SECONDS, Executor, Progress
from zoo_compute.node.process import run_node
from zoo_compute.terminal.output import log_to_stderr

WITHHOLD, REFUSE = "withhold", "refuse"
KINDS = (
    FABRICATE,
    FABRICATE_ADAPTERS,
    "skip-step",
    "half-batch",
    "bf16",
    "edited-data",
    "stale",
    LAZY,
    COPY,
    WITHHOLD,
    REFUSE,
)


class StateLosingExecutor(Executor):
    """Executor that trains and then applies ``lose`` to each boundary state's file."""

    def __init__(
        self,
        lose: Callable[[Path], None],
        profile: ExecutionProfile,
        memory_bytes: int,
        workdir: Path,
        processes: int = 1,
    ) -> None:
        super().__init__(profile, memory_bytes, workdir, processes)
        self._lose = lose

    def run(
        self,
        task: dict[str, Any],
        timeout: float = TASK_TIMEOUT_SECONDS,
        on_progress: Progress | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        result = super().run(task, timeout, on_progress, **more)
        for path in result.get("states", ()):
            self._lose(Path(path))
        return result


def _truncate(path: Path) -> None:
    """Leave a state that the market refuses, so that the node's lease expires."""
    os.truncate(path, path.stat().st_size // 2)


def _make_unreadable(path: Path) -> None:
    """Replace the file by a folder: the unit is delivered, but its reveal fails with a code."""
    path.unlink()
    path.mkdir()


_STATE_LOSS = {WITHHOLD: _truncate, REFUSE: _make_unreadable}


class DishonestExecutor(Executor):
    """Executor whose child trains every unit dishonestly, and replays honestly."""

    def __init__(
        self, kind: str, profile: ExecutionProfile, memory_bytes: int, workdir: Path, processes: int = 1
    ) -> None:
        super().__init__(profile, memory_bytes, workdir, processes)
        self._kind = kind

    def child_command(self) -> list[str]:
        _, *arguments = super().child_command()
        return ["zoo_compute.devnet.adversaries.child", *arguments, self._kind]


def executor_of(kind: str) -> Callable[..., Executor]:
    """Return the executor factory of one of the ``KINDS``. Raises ValueError for another kind."""
    if kind not in KINDS:
        raise ValueError(f"attack is {kind!r}; expected one of {', '.join(KINDS)}")
    if kind in _STATE_LOSS:
        return partial(StateLosingExecutor, _STATE_LOSS[kind])
    return partial(DishonestExecutor, kind)


def node_arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the ``zoo-compute node run`` arguments that :func:`node_config` needs."""
    parser = argparse.ArgumentParser(description=description)
    for name in ("--api-url", "--name", "--min-price"):
        parser.add_argument(name, required=True)
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--claim-seconds", type=float, required=True)
    parser.add_argument("--processes", type=int)
    return parser


def node_config(arguments: argparse.Namespace) -> NodeConfig:
    """Return the configuration of a provider node."""
    return NodeConfig(
        api_url=arguments.api_url,
        role="provider",
        state_dir=arguments.state_dir,
        name=arguments.name,
        min_price_wei=parse_zen(arguments.min_price, "min-price"),
        claim_seconds=arguments.claim_seconds,
        processes=arguments.processes,
    )


def main() -> None:
    """Run the adversary until it is stopped."""
    parser = node_arguments(__doc__)
    parser.add_argument("--attack", choices=KINDS, default=FABRICATE)
    arguments = parser.parse_args()
    log_to_stderr()
    logging.getLogger(__name__).warning("adversary_started attack=%s", arguments.attack)
    run_node(node_config(arguments), executor_of(arguments.attack))


if __name__ == "__main__":
    main()
