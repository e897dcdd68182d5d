"""A node of two processes that is killed in each stage of a unit."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from kit.engines.ipfs_processes import StoreProcess
from kit.nodes.node_work_fixtures import TRAINING, Killed, Market, OneNode, stored_spec
from kit.training import train_task
from kit.waiting import is_alive, wait_until

from training_gym.runtime.profile import CPU
from zoo_compute.node.execution.executor import Executor

MEMORY = 2 << 30
HALVES = {"gradient_shards": 2}
PROGRAM = """
import json, sys
from pathlib import Path
from training_gym.runtime.profile import CPU
from zoo_compute.node.execution.executor import Executor
directory = Path(sys.argv[1])
executor = Executor(CPU, 2 << 30, directory, processes=2)
print("start", executor.environment_class, flush=True)
task = json.loads(sys.stdin.readline())
executor.run(task | {"environment": executor.environment_class}, 120, lambda seen: print(seen["step"], flush=True))
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    with Executor(CPU, MEMORY, tmp_path_factory.mktemp("pair"), processes=2) as running:
        yield running


@pytest.fixture
def halves(store: StoreProcess, pair: Executor, tmp_path: Path) -> OneNode:
    return OneNode(store, pair, tmp_path / "pair", HALVES)


@pytest.fixture
def trace_root(store: StoreProcess, executor: Executor, tmp_path: Path) -> str:
    """Return the trace root of the unit on one process."""
    market = Market(store)
    OneNode(store, executor, tmp_path / "alone", HALVES).train(market)
    return str(market.body("commit")["trace_root"])


@pytest.mark.parametrize("moment", ["commit", "upload", "complete"])
def test_killed_node_delivers_unit_of_two(halves: OneNode, trace_root: str, moment: str) -> None:
    with pytest.raises(Killed):
        halves.train(Market(halves.store, at=moment, fault=Killed()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(halves.executor, "run", lambda *_: pytest.fail("trained a second time"))
        market = Market(halves.store)
        halves.train(market)
    assert market.order() == ["commit", "upload", "complete"]
    assert market.body("commit")["trace_root"] == trace_root


@pytest.mark.parametrize("stage", ["start", "2"])
def test_processes_end_with_killed_node(store: StoreProcess, tmp_path: Path, stage: str) -> None:
    """Before the group forms, and between two steps."""
    spec = stored_spec(store, TRAINING | HALVES).to_dict()
    argv = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as node:
        assert node.stdin is not None
        assert node.stdout is not None
        node.stdin.write(json.dumps(train_task(spec, tmp_path, "")) + "\n")
        node.stdin.flush()
        assert any(line.split()[0] == stage for line in node.stdout)
        family = psutil.Process(node.pid).children(recursive=True)
        node.kill()
    assert len(family) == 2
    wait_until(lambda: not any(map(is_alive, family)))
