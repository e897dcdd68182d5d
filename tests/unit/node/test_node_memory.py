"""Memory of a node, compared with a unit's before it starts."""

from pathlib import Path

import pytest

from training_gym.runtime.memory import Memory, measured
from training_gym.runtime.profile import CPU, CUDA, ExecutionProfile
from zoo_compute.node.execution import hardware, sandbox
from zoo_compute.node.execution.executor import Executor, ExecutorError, with_cause

GIB = 1 << 30


def test_container_limits_measured_memory(tmp_path: Path) -> None:
    write_group(tmp_path, "max", 1, "memory.max", "memory.current")
    assert measured(tmp_path).total == measured(tmp_path / "none").total
    write_group(tmp_path / "memory", GIB, GIB // 4, "memory.limit_in_bytes", "memory.usage_in_bytes")
    assert measured(tmp_path) == Memory(GIB, GIB * 3 // 4)
    write_group(tmp_path, 1000, 1, "memory.max", "memory.current")
    assert measured(tmp_path) == Memory(1000, 999)


@pytest.mark.parametrize(
    ("folder", "names", "prefix"),
    [
        (".", ("memory.max", "memory.current"), ""),
        ("memory", ("memory.limit_in_bytes", "memory.usage_in_bytes"), "total_"),
    ],
    ids=["version_2", "version_1"],
)
def test_cached_files_of_container_count_as_free(
    tmp_path: Path, folder: str, names: tuple[str, str], prefix: str
) -> None:
    cached = {"active_file": 200, "inactive_file": 300, "anon": 400, "file": 600}
    write_group(tmp_path / folder, 1000, 950, *names, **{prefix + name: size for name, size in cached.items()})
    assert measured(tmp_path) == Memory(1000, 550)


def write_group(folder: Path, limit: object, use: int, limit_file: str, use_file: str, **statistics: int) -> None:
    """Write the files of a control group."""
    folder.mkdir(exist_ok=True)
    (folder / limit_file).write_text(f"{limit}\n")
    (folder / use_file).write_text(f"{use}\n")
    (folder / "memory.stat").write_text("".join(f"{name} {size}\n" for name, size in statistics.items()))


@pytest.mark.parametrize(
    ("profile", "limit", "available", "free"),
    [(CPU, 8 * GIB, 2 * GIB, 2 * GIB), (CPU, GIB, 2 * GIB, GIB), (CUDA, GIB, 2 * GIB, 23 * 10**9)],
)
def test_larger_unit_is_refused_with_both_numbers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, profile: ExecutionProfile, limit: int, available: int, free: int
) -> None:
    monkeypatch.setattr(hardware, "measured", lambda: Memory(8 * GIB, available))
    monkeypatch.setattr(hardware, "detect", lambda: hardware.Hardware("RTX 4090", 1, 24.0, 64.0, 1.0))
    executor = Executor(profile, limit, tmp_path)
    executor.require_memory(free)
    with pytest.raises(ExecutorError, match=f"needs {(free + GIB) / GIB:.2f} GiB.*has {free / GIB:.2f} GiB") as refused:
        executor.require_memory(free + GIB)
    assert refused.value.code == "out_of_memory"


def test_processes_share_main_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "measured", lambda: Memory(8 * GIB, 6 * GIB))
    monkeypatch.setattr(hardware, "detect", lambda: hardware.Hardware("RTX 4090", 4, 24.0, 64.0, 1.0))
    assert [hardware.free_memory(CPU, 4 * GIB, count) // GIB for count in (1, 2, 4)] == [4, 3, 1]
    assert hardware.free_memory(CUDA, GIB, 4) == hardware.free_memory(CUDA, GIB)


@pytest.mark.parametrize(
    ("code", "kills", "told"),
    [
        ("process_lost", 3, "out_of_memory"),
        ("process_lost", 2, "process_lost"),
        ("timeout", 3, "timeout"),
    ],
)
def test_kernel_kill_for_memory_has_own_code(monkeypatch: pytest.MonkeyPatch, code: str, kills: int, told: str) -> None:
    assert sandbox.memory_kills() >= 0  # this machine's
    monkeypatch.setattr(sandbox, "memory_kills", lambda: kills)
    found = with_cause(ExecutorError(code, "executor", "process 1 ended with status -9"), 2)
    assert (found.code, found.message) == (told, "process 1 ended with status -9")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried", True),
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB", True),
        ("terminate called after throwing an instance of 'std::bad_alloc'", True),
        ("OSError: [Errno 12] Cannot allocate memory", True),
        ("MemoryError:", True),
        ("CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.", True),
        ("IndexError: list index out of range", False),
    ],
)
def test_allocation_failures_are_recognised(text: str, expected: bool) -> None:
    assert sandbox.is_allocation_failure(text) is expected
