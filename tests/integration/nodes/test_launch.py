"""Units on the processes of one node: trained, interrupted by a lost process, and false."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from kit.training import train_task
from kit.waiting import is_alive, wait_until

from training_gym.runtime.profile import CPU
from training_gym.spec.config import TrainingSpec
from zoo_compute.devnet.adversaries.adversary import executor_of
from zoo_compute.node.execution.executor import Executor, ExecutorError

MEMORY = 2 << 30
SETTINGS = {"rounds": 1, "inner_steps": 4, "segment_steps": 2, "batch_size": 4, "gradient_shards": 2, "warmup_steps": 0}


def specification(**training: Any) -> dict[str, Any]:
    model = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "sequence_length": 16}
    document = {"model_config": model, "data_config": {"dataset": "x" * 46}, "training_config": SETTINGS | training}
    return TrainingSpec.from_dict(document).to_dict()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    with Executor(CPU, MEMORY, tmp_path_factory.mktemp("alone")) as running:
        running.start()
        yield running


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    with Executor(CPU, MEMORY, tmp_path_factory.mktemp("pair"), processes=2) as running:
        running.start()
        yield running


@pytest.fixture
def task(alone: Executor, tmp_path: Path) -> dict[str, Any]:
    return train_task(specification(), tmp_path, alone.environment_class)


def processes_of(executor: Executor) -> list[psutil.Process]:
    """Return the living training processes, process 0 first."""
    found = [one for one in psutil.Process().children(recursive=True) if is_alive(one)]
    return sorted((one for one in found if one.cwd() == str(executor.workdir)), key=lambda one: one.create_time())


def replayed(executor: Executor, task: dict[str, Any], result: dict[str, Any], segment: int) -> str:
    parts = {"start_leaf": result["leaves"][segment], "state": result["states"][segment]}
    return str(executor.run({**task, "kind": "replay", "segment": segment, **parts}, 60)["end_leaf"])


def test_one_process_replays_unit_of_two(alone: Executor, pair: Executor, task: dict[str, Any]) -> None:
    assert pair.environment_class == alone.environment_class
    result = pair.run(task, 120)
    first, second = processes_of(pair)
    assert result["trace_root"] == alone.run(task, 60)["trace_root"]
    for segment in range(2):
        assert replayed(alone, task, result, segment) == result["leaves"][segment + 1]
    assert pair._child is not None
    spaces = {os.readlink(f"/proc/{pid}/ns/net") for pid in (os.getpid(), first.pid, second.pid)}
    assert len(spaces) == (2 if pair._child.ready["network_removed"] else 1)


class RefusedPair(Executor):
    """Two processes on a kernel that refuses network namespaces."""

    more: tuple[str, ...] = ()

    def child_command(self) -> list[str]:
        _, *arguments = super().child_command()
        return ["tests.kit.nodes.refused_child", *arguments, *self.more]


@pytest.mark.parametrize(("more", "usable"), [(("no-loopback",), 1), pytest.param((), 2, marks=pytest.mark.long)])
def test_refused_namespace_is_reported(more: tuple[str, ...], usable: int, tmp_path: Path) -> None:
    pair = RefusedPair(CPU, MEMORY, tmp_path, 2)
    pair.more = more
    with pair:
        assert pair.environment_class
        assert (pair.usable_processes, pair.network_removed) == (usable, False)
        assert len(processes_of(pair)) == usable


class LostPair(Executor):
    """Two processes of which one is lost in an inner step."""

    rank, step = 0, 0

    def child_command(self) -> list[str]:
        _, *arguments = super().child_command()
        return ["tests.kit.nodes.lost_child", *arguments, str(self.rank), str(self.step)]


def require_repeatable(
    alone: Executor, pair: Executor, task: dict[str, Any], check: Callable[[], None] | None = None
) -> None:
    """Require that a unit with a lost process fails, leaves no process, and can be repeated."""
    assert pair.environment_class == alone.environment_class  # waits until both processes are there
    group = processes_of(pair)
    with pytest.raises(ExecutorError) as loss:
        pair.run(task, 120, check=check)
    assert loss.value.code == "process_lost"
    wait_until(lambda: not any(map(is_alive, group)))
    assert pair.run(task, 120)["trace_root"] == alone.run(task, 60)["trace_root"]


@pytest.mark.parametrize(
    ("rank", "step"), [(1, 3), *(pytest.param(*case, marks=pytest.mark.long) for case in [(0, 3), (1, 4), (0, 1)])]
)
def test_unit_is_repeated_after_lost_process(
    alone: Executor, task: dict[str, Any], rank: int, step: int, tmp_path: Path
) -> None:
    with LostPair(CPU, MEMORY, tmp_path, processes=2) as pair:
        pair.rank, pair.step = rank, step
        require_repeatable(alone, pair, task)


@pytest.mark.long
def test_unit_is_repeated_after_loss_before_start(alone: Executor, pair: Executor, task: dict[str, Any]) -> None:
    assert pair.environment_class
    second = processes_of(pair)[1]
    second.suspend()  # it cannot join the group
    require_repeatable(alone, pair, task, check=second.kill)


def test_false_step_of_two_processes_fails_replay(alone: Executor, task: dict[str, Any], tmp_path: Path) -> None:
    with executor_of("skip-step")(CPU, MEMORY, tmp_path, 2) as cheat:
        result = cheat.run(task, 120)
        assert len(processes_of(cheat)) == 2
    for segment in range(2):
        assert replayed(alone, task, result, segment) != result["leaves"][segment + 1]
