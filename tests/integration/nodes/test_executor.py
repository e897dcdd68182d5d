"""The executor with its real child process, real training and the kernel's limits."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import safetensors.numpy
from kit.errors import raising
from kit.training import train_task
from kit.waiting import is_alive, wait_until
from safetensors import SafetensorError

from training_gym.aggregate.outer_step import initial_outer_state, outer_step
from training_gym.evaluate.sums import LossSums
from training_gym.runtime.profile import CPU
from training_gym.spec.config import TrainingSpec
from training_gym.units.checkpoint import load_state, save_state
from zoo_compute.devnet.adversaries.adversary import KINDS, REFUSE, WITHHOLD, executor_of
from zoo_compute.devnet.adversaries.child import COPY, FABRICATE, FABRICATE_ADAPTERS
from zoo_compute.node.execution.executor import Executor, ExecutorError

MEMORY = 1 << 30
OTHER_KINDS = [kind for kind in KINDS if kind not in ("skip-step", FABRICATE, FABRICATE_ADAPTERS, WITHHOLD, REFUSE)]
ROOT = Path(__file__).parents[3]


def specification(**training: Any) -> dict[str, Any]:
    settings = {"inner_steps": 8, "segment_steps": 2, "batch_size": 4, "warmup_steps": 2, **training}
    document = {"data_config": {"dataset": "Qm" + "a" * 44}, "training_config": settings}
    return TrainingSpec.from_dict(document).to_dict()


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    with Executor(CPU, MEMORY, tmp_path_factory.mktemp("executor")) as running:
        running.start()
        yield running


@pytest.fixture
def task(executor: Executor, tmp_path: Path) -> dict[str, Any]:
    return train_task(specification(), tmp_path, executor.environment_class)


def long(task: dict[str, Any]) -> dict[str, Any]:
    return {**task, "spec": specification(inner_steps=10_000, segment_steps=500)}


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if is_alive(child)]


def child_of(executor: Executor) -> psutil.Process:
    (found,) = [child for child in children() if child.cwd() == str(executor.workdir)]
    return found


def refused(executor: Executor, task: dict[str, Any], timeout: float = 60) -> ExecutorError:
    with pytest.raises(ExecutorError) as refusal:
        executor.run(task, timeout)
    return refusal.value


def replay_of(task: dict[str, Any], result: dict[str, Any], segment: int) -> dict[str, Any]:
    parts = {"start_leaf": result["leaves"][segment], "state": result["states"][segment]}
    return {**task, "kind": "replay", "segment": segment, **parts}


def replayed(executor: Executor, task: dict[str, Any], result: dict[str, Any], segment: int) -> str:
    return str(executor.run(replay_of(task, result, segment), 60)["end_leaf"])


def test_every_segment_replays_to_committed_leaf(executor: Executor, task: dict[str, Any]) -> None:
    seen: list[dict[str, Any]] = []
    result = executor.run(task, 60, seen.append)
    assert [progress["step"] for progress in seen] == list(range(1, 9))
    assert result["steps"] == seen[-1]["steps"] == 8
    for segment in range(4):
        assert replayed(executor, task, result, segment) == result["leaves"][segment + 1]
    tampered = replay_of(task, result, 3) | {"start_leaf": result["leaves"][0]}
    assert refused(executor, tampered).code == "start_state_mismatch"


@pytest.mark.long
def test_two_children_train_bit_exactly(executor: Executor, task: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    first = executor.run(task, 60)
    with Executor(CPU, MEMORY, tmp_path) as other:
        assert other.environment_class == executor.environment_class
        second = other.run({**task, "output": str(tmp_path / "other")}, 60)
    assert second["trace_root"] == first["trace_root"]
    for file in ("payload", "slot_state"):
        assert Path(second[file]).read_bytes() == Path(first[file]).read_bytes()


@pytest.mark.long
def test_cli_class_equals_registered_class(executor: Executor, tmp_path: Path) -> None:
    def ask(profile: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "zoo_compute", "node", "environment", "--profile", profile, "--json"]
        variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}  # no market, and no wallet
        return subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)

    shown = json.loads(ask(CPU.name).stdout)
    assert shown == {"profile": CPU.name, "environment_class": executor.environment_class}
    refused = json.loads(ask("cpu-avx512").stderr)["error"]
    assert refused["code"] == "unknown-profile"
    assert "Remove --profile" in refused["remedy"]


def test_fabricated_unit_fails_replay_of_each_segment(executor: Executor, task: dict[str, Any], tmp_path: Path) -> None:
    with executor_of(FABRICATE)(CPU, MEMORY, tmp_path) as cheat:
        result = cheat.run(task, 60)
        assert cheat.run({"kind": "probe"}, 60)["environment"] == executor.environment_class
    assert set(result) == set(executor.run({**task, "output": str(tmp_path)}, 60))
    for segment in range(4):
        assert replayed(executor, task, result, segment) != result["leaves"][segment + 1]


@pytest.mark.parametrize("kind", ["skip-step", *(pytest.param(kind, marks=pytest.mark.long) for kind in OTHER_KINDS)])
def test_devnet_adversary_fails_replay_of_each_segment(
    executor: Executor, task: dict[str, Any], tmp_path: Path, kind: str
) -> None:
    with executor_of(kind)(CPU, MEMORY, tmp_path) as cheat:
        assert cheat.environment_class == executor.environment_class
        if kind in ("stale", "lazy"):  # the first unit is honest
            cheat.run(task, 60)
            task = {**task, "round": 1}
        result = cheat.run(task, 60)
    for segment in range(4):
        assert replayed(executor, task, result, segment) != result["leaves"][segment + 1]


@pytest.mark.parametrize("kind", [WITHHOLD, pytest.param(REFUSE, marks=pytest.mark.long)])
def test_devnet_withholder_leaves_no_usable_states(task: dict[str, Any], tmp_path: Path, kind: str) -> None:
    with executor_of(kind)(CPU, MEMORY, tmp_path) as cheat:
        result = cheat.run(task, 60)
    assert Path(result["payload"]).is_file()
    assert result["states"]
    for state in map(Path, result["states"]):
        assert state.is_file() is (kind == WITHHOLD)
        if state.is_file():
            with pytest.raises(SafetensorError):
                safetensors.numpy.load(state.read_bytes())


def test_unknown_adversary_is_refused() -> None:
    with pytest.raises(ValueError, match="'nap'; expected one of fabricate, fabricate-adapters, skip-step"):
        executor_of("nap")


def test_model_is_built_from_earlier_one_and_updates(executor: Executor, task: dict[str, Any], tmp_path: Path) -> None:
    spec = TrainingSpec.from_dict(specification(down_top_k=64))
    model, state, updates = load_state(spec, Path(task["checkpoint"]).read_bytes()), initial_outer_state(spec), []
    for round_ in range(2):
        mean = np.random.default_rng(round_).normal(0.0, 1e-3, spec.num_parameters()).astype(np.float32)
        step = outer_step(spec, model, mean, state)
        model, state = step.parameters, step.state
        updates.append(tmp_path / f"update-{round_}")
        updates[-1].write_bytes(step.update)
    wanted = {"kind": "catch_up", "spec": spec.to_dict(), "checkpoint": task["checkpoint"]}
    wanted |= {"updates": [str(path) for path in updates], "output": str(tmp_path / "made")}
    executor.run(wanted, 60)
    assert (tmp_path / "made").read_bytes() == save_state(model)
    updates[1].write_bytes(b"anything")
    assert refused(executor, wanted).code not in ("crashed", "task_failed")
    assert refused(executor, wanted | {"updates": [7]}).code == "invalid_task"


def test_checkpoint_is_evaluated(executor: Executor, task: dict[str, Any]) -> None:
    fields = ("spec", "environment", "checkpoint")
    evaluation = {"kind": "evaluate", "validation_data": task["train_data"], **{name: task[name] for name in fields}}
    result = executor.run(evaluation, 60)
    assert 5.3 < LossSums.from_bytes(result["record"].encode()).loss < 5.8
    other = refused(executor, evaluation | {"environment": "0x" + "00" * 32})
    assert (other.field, other.code) == ("task.environment", "environment_mismatch")


@pytest.mark.parametrize(
    ("change", "field", "code"),
    [
        ({"kind": "execute"}, "task.kind", "invalid_task"),
        ({"spec": {"data_config": {}}}, "data_config.dataset", "missing_key"),
        ({"job_id": "0x12"}, "task.job_id", "invalid_task"),
        ({"round": 8}, "task.round", "invalid_task"),
        ({"checkpoint": "/nowhere"}, "task.checkpoint", "missing_input"),
        ({"checkpoint": __file__}, "checkpoint", "malformed"),
        ({"slot_state": __file__}, "slot_state", "malformed"),
        ({"environment": "0x" + "00" * 32}, "task.environment", "environment_mismatch"),
    ],
)
def test_invalid_task_is_refused_and_child_survives(
    executor: Executor, task: dict[str, Any], change: dict[str, Any], field: str, code: str
) -> None:
    before = child_of(executor).pid
    error = refused(executor, {**task, **change})
    assert (error.field, error.code) == (field, code)
    assert child_of(executor).pid == before


def test_unexpected_failure_gives_next_task_new_child(executor: Executor, task: dict[str, Any]) -> None:
    """After one failure a device fails everything that the same process asks of it."""
    before = child_of(executor)
    assert refused(executor, {**task, "output": "/nowhere"}).code == "task_failed"
    assert executor.run(task, 60)["steps"] == 8
    assert not before.is_running()


def test_overdue_task_is_killed_and_next_runs(executor: Executor, task: dict[str, Any]) -> None:
    before = child_of(executor)
    assert refused(executor, long(task), timeout=0.3).code == "timeout"
    assert not before.is_running()
    assert executor.run(task, 60)["steps"] == 8


@pytest.mark.long
def test_oversized_task_is_refused_and_next_runs(executor: Executor, task: dict[str, Any]) -> None:
    greedy = {**task, "spec": specification(batch_size=4096)}
    assert refused(executor, greedy).code == "out_of_memory"
    assert executor.run(task, 60)["steps"] == 8


@pytest.mark.parametrize(("cause", "code"), [(signal.SIGSEGV, "crashed"), (signal.SIGKILL, "out_of_memory")])
def test_crash_is_reported_and_next_task_runs(
    executor: Executor, task: dict[str, Any], cause: signal.Signals, code: str
) -> None:
    child = child_of(executor)
    with pytest.raises(ExecutorError, match=cause.name) as refusal:
        executor.run(long(task), 60, lambda progress: os.kill(child.pid, cause))
    assert refusal.value.code == code
    assert executor.run(task, 60)["steps"] == 8


def test_raising_observer_abandons_task(executor: Executor, task: dict[str, Any]) -> None:
    with pytest.raises(InterruptedError):
        executor.run(long(task), 60, raising(InterruptedError("the lease is gone")))
    assert executor.run(task, 60)["steps"] == 8


def test_closing_ends_running_task_and_its_process(task: dict[str, Any], tmp_path: Path) -> None:
    executor = Executor(CPU, MEMORY, tmp_path)
    begun = threading.Event()
    errors: list[ExecutorError] = []

    def work() -> None:
        with pytest.raises(ExecutorError) as refusal:
            executor.run(long(task), 60, lambda progress: begun.set())
        errors.append(refusal.value)

    worker = threading.Thread(target=work)
    worker.start()
    assert begun.wait(60)
    executor.close()
    worker.join(10)
    assert [error.code for error in errors] == ["closed"]
    assert not [child for child in children() if child.cwd() == str(tmp_path)]
    assert refused(executor, task).code == "closed"


@pytest.mark.long
def test_child_ends_with_its_parent(tmp_path: Path) -> None:
    program = (
        "import signal, sys; from pathlib import Path; from training_gym.runtime.profile import CPU\n"
        "from zoo_compute.node.execution.executor import Executor\n"
        f"executor = Executor(CPU, {MEMORY}, Path({str(tmp_path)!r})); executor.environment_class\n"
        "print('warm', flush=True); signal.pause()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"warm\n"
        (child,) = psutil.Process(parent.pid).children()
        parent.kill()
    try:
        child.wait(60)
    finally:
        if child.is_running():
            child.kill()


def test_failed_child_start_reports_reason(tmp_path: Path) -> None:
    with Executor(CPU, 1 << 20, tmp_path) as executor:
        error = refused(executor, {"kind": "probe"})
    assert error.code == "start_failed"
    assert "its limit of 0.0 GiB is too low (--memory-gb)" in error.message


def test_sandbox_refuses_network_and_programs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        program = f"""
import os, socket, subprocess
from zoo_compute.node.execution import sandbox
sandbox.leave_network()
sandbox.limit({MEMORY})
for attempt in (
    lambda: socket.socket(),
    lambda: socket.getaddrinfo("localhost", 80),
    lambda: socket.create_connection(("127.0.0.1", {server.getsockname()[1]})),
    lambda: subprocess.run(["true"]),
    lambda: os.system("true"),
    lambda: os.fork(),
):
    try:
        attempt()
    except PermissionError as error:
        assert "not allowed" in str(error), error
    else:
        raise SystemExit(2)
"""
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_sandbox_is_entered_without_user_namespace_maps(tmp_path: Path) -> None:
    """AppArmor in Ubuntu 24.04 allows a user namespace and refuses its maps."""
    program = f"""
import builtins, os
from zoo_compute.node.execution import sandbox
named, opened = [], open
def refusing(path, *rest):
    if str(path).startswith("/proc/self/"):
        named.append(path)
        raise PermissionError(1, "Operation not permitted", path)
    return opened(path, *rest)
builtins.open = refusing
before = os.readlink("/proc/self/ns/net")
isolated = sandbox.leave_network()
sandbox.limit({MEMORY})
assert isolated == (os.readlink("/proc/self/ns/net") != before) == bool(named)
opened({str(tmp_path / "file")!r}, "w").write("files can be written all the same")
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_processor_time_limit_allows_for_threads() -> None:
    """The hardware proof hashes on 16 threads, which use an hour of CPU time in four minutes."""
    program = """
import os, resource
from zoo_compute.node.execution import sandbox
sandbox.limit_processor_time(3600)
assert resource.getrlimit(resource.RLIMIT_CPU)[0] >= 3600 * os.cpu_count()
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_child_has_no_network_where_kernel_allows(executor: Executor, task: dict[str, Any]) -> None:
    removed = executor._child is not None and executor._child.ready["network_removed"]
    ours, theirs = (os.readlink(f"/proc/{pid}/ns/net") for pid in (os.getpid(), child_of(executor).pid))
    assert (ours != theirs) == removed


def test_child_sees_no_parent_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ZOO_PRIVATE_KEY", "0xsecret")
    with Executor(CPU, MEMORY, tmp_path) as executor:
        executor.start()
        child = child_of(executor)
        variables = wait_until(lambda: found if "OMP_NUM_THREADS" in (found := child.environ()) else None)
    assert variables["MKL_CBWR"] == CPU.variables["MKL_CBWR"]
    assert "ZOO_PRIVATE_KEY" not in variables


def test_devnet_copier_submits_neighbouring_replica_result(
    executor: Executor, task: dict[str, Any], tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("copied", "neighbour")]
    for folder in folders:
        folder.mkdir()
    with executor_of(COPY)(CPU, MEMORY, tmp_path) as cheat:
        copied = cheat.run({**task, "output": str(folders[0])}, 60)
    neighbours = executor.run({**task, "slot": task["slot"] ^ 1, "output": str(folders[1])}, 60)
    assert Path(copied["payload"]).read_bytes() == Path(neighbours["payload"]).read_bytes()
    assert copied["trace_root"] != neighbours["trace_root"]  # its leaves name its own slot
