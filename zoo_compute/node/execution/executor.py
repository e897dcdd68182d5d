"""Runs training tasks in a warm child process without network access.

The parent never imports torch. It starts the child ahead of the first task, because imports and probing take over a
second. It starts a fresh child after a kill, a crash, an allocation failure or an unexpected error.
"""

import contextlib
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import zoo_compute
from training_gym.runtime.launch import PROCESS_LOST
from training_gym.runtime.profile import ExecutionProfile
from zoo_compute.base.errors import ZooError
from zoo_compute.node.execution import hardware, sandbox
from zoo_compute.node.execution.frames import encode_frame, take_frame

WARM_UP_SECONDS = 120.0

TASK_TIMEOUT_SECONDS = 24 * 3600.0
"""After this time the child is killed. The market's round deadline is far shorter."""

_PROCESSOR_SLACK_SECONDS = 10.0
_SILENCE_SECONDS = 2.0
_LOG_TAIL_BYTES = 2000
_END_SECONDS = 2.0  # from a child's last output to its end
_GIB = 1 << 30
_INHERITED_VARIABLES = ("PATH", "LANG", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")

_RESTART_CODES = ("out_of_memory", "environment_changed", "task_failed", PROCESS_LOST)
"""Failures that require a fresh child: after a device failure, all further calls of its process fail."""

Progress = Callable[[dict[str, Any]], None]


log = logging.getLogger(__name__)


class ExecutorError(Exception):
    """Failure of a task.

    Attributes:
        code: ``timeout``, ``out_of_memory``, ``crashed``, ``process_lost``, ``start_failed``, ``closed``,
            ``task_failed`` or the code of the task's :class:`training_gym.spec.errors.GymError`
            (``start_state_mismatch``, ...).
        field: the task's field or input at fault.
    """

    def __init__(self, code: str, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.code = code
        self.field = field
        self.message = message


def with_cause(error: ExecutorError, kills: int) -> ExecutorError:
    """Return a task's error: ``out_of_memory`` if the kernel killed one of a group for it.

    Args:
        kills: processes that the kernel had killed for memory before the task.
    """
    if error.code != PROCESS_LOST or sandbox.memory_kills() <= kills:
        return error
    return ExecutorError("out_of_memory", error.field, error.message)


@contextlib.contextmanager
def executor_errors() -> Iterator[None]:
    """Raise an :class:`ExecutorError` as a :class:`ZooError`."""
    try:
        yield
    except ExecutorError as error:
        raise ZooError(f"executor-{error.code.replace('_', '-')}", str(error)) from error


class Executor:
    """Runner of one task at a time in one training child. Calls from several threads queue.

    Args:
        profile: execution profile; nodes of equal environment class can replay each other's work.
        memory_bytes: bound on the child's own data (not on the libraries it maps).
        workdir: existing directory for the child's log and temporary files.
        processes: processes that may train a unit together, with ``memory_bytes`` each.
    """

    def __init__(self, profile: ExecutionProfile, memory_bytes: int, workdir: Path, processes: int = 1) -> None:
        self._profile = profile
        self._memory_bytes = memory_bytes
        self.workdir = workdir.resolve()
        self._processes = processes
        self._lock = threading.RLock()
        self._child: _Child | None = None
        self._closed = False
        self.last_class = ""
        """Environment class of the last child, 0x hex; readable without waiting for a task."""
        self.usable_processes = 1
        """Processes of the last child that can train a unit together."""
        self.network_removed = True
        """Whether the kernel gave the last child a network namespace of its own."""

    def __enter__(self) -> "Executor":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def child_command(self) -> list[str]:
        """Module and arguments of the child."""
        arguments = self._profile.name, str(self._memory_bytes), str(self._processes)
        return ["zoo_compute.node.execution.child", *arguments]

    def require_memory(self, needed: int, processes: int = 1) -> None:
        """Refuse a task of which each process needs more bytes than are free. Raises ExecutorError."""
        free = hardware.free_memory(self._profile, self._memory_bytes, processes)
        if needed > free:
            raise ExecutorError(
                "out_of_memory",
                "task",
                f"needs {needed / _GIB:.2f} GiB of memory; this node has {free / _GIB:.2f} GiB free for it",
            )

    def start(self) -> None:
        """Start warming up a child; returns at once. Raises ExecutorError: ``closed``."""
        with self._lock:
            self._started()

    @property
    def environment_class(self) -> str:
        """The child's environment class, 0x hex; waits until it is warm.

        Raises:
            ExecutorError: ``start_failed`` or ``closed``.
        """
        with self._lock:
            self._ready_child()
        return self.last_class

    @contextlib.contextmanager
    def reserve(self) -> Iterator[None]:
        """Reserve the child for this thread's dependent tasks; waits for a running task."""
        with self._lock:
            yield

    def run(
        self,
        task: dict[str, Any],
        timeout: float = TASK_TIMEOUT_SECONDS,
        on_progress: Progress | None = None,
        *,
        check: Callable[[], None] | None = None,
    ) -> dict[str, Any]:
        """Return the result of ``task`` (``tasks.py`` describes both).

        Args:
            task: task object with absolute paths.
            timeout: seconds without the warm-up, after which the child is killed.
            on_progress: called with ``{"step", "steps", "loss"}`` after each inner step. An exception kills the child
                and propagates.
            check: called every few seconds without a message; exceptions are handled as those of ``on_progress``.

        Raises:
            ExecutorError: with the reason's code.
        """
        with self._lock:
            child, kills = self._ready_child(), sandbox.memory_kills()
            try:
                result, error = self._run(child, task, timeout, on_progress, check)
            except BaseException as failure:
                self._discard()
                if self._closed:
                    raise self._has_been_closed() from None
                if isinstance(failure, ExecutorError):
                    raise with_cause(failure, kills) from None
                raise
            if error is None:
                return result
            if error.code in _RESTART_CODES or self._processes > 1:  # other processes can wait for this one
                self._discard()
            raise with_cause(error, kills)

    def close(self) -> None:
        """Kill the child, also during a task, and refuse further tasks."""
        self._closed = True
        if (child := self._child) is not None:
            child.kill()

    def _run(
        self,
        child: "_Child",
        task: dict[str, Any],
        timeout: float,
        on_progress: Progress | None,
        check: Callable[[], None] | None,
    ) -> tuple[dict[str, Any], ExecutorError | None]:
        """Return the result, or the error of a task after which the child is alive."""
        child.send({"task": task, "processor_seconds": timeout + _PROCESSOR_SLACK_SECONDS})
        deadline = time.monotonic() + timeout
        while True:
            try:
                message = child.receive(min(deadline, time.monotonic() + _SILENCE_SECONDS))
            except TimeoutError:
                if time.monotonic() >= deadline:
                    raise ExecutorError("timeout", "task", f"took longer than {timeout:g} s and was killed") from None
                if check is not None:
                    check()
                continue
            if message["type"] == "result":
                return message["result"], None
            if message["type"] == "error":
                return {}, ExecutorError(message["code"], message["field"], message["message"])
            if on_progress is not None:
                on_progress({key: message[key] for key in ("step", "steps", "loss")})

    def _started(self) -> "_Child":
        if self._closed:
            raise self._has_been_closed()
        if self._child is None or not self._child.alive:
            self._discard()
            self._child = _Child(self.child_command(), self._profile.variables, self.workdir, self._processes)
            if self._closed:  # by another thread, before the child existed
                self._discard()
                raise self._has_been_closed()
        return self._child

    def _ready_child(self) -> "_Child":
        child = self._started()
        if child.ready:
            return child
        try:
            child.ready = child.receive(time.monotonic() + WARM_UP_SECONDS)
        except TimeoutError:
            self._discard()
            raise ExecutorError("start_failed", "executor", f"child not ready in {WARM_UP_SECONDS:g} s") from None
        except ExecutorError as error:
            self._discard()
            limit = f"its limit of {self._memory_bytes / _GIB:.1f} GiB is too low (--memory-gb). "
            reason = limit if error.code == "out_of_memory" else ""
            raise ExecutorError("start_failed", "executor", reason + error.message) from None
        self.last_class = str(child.ready["environment"])
        self.usable_processes, self.network_removed = child.ready["processes"], child.ready["network_removed"]
        if not self.network_removed or self.usable_processes < self._processes:
            log.warning("network_not_removed processes=%d usable=%d", self._processes, self.usable_processes)
        return child

    def _has_been_closed(self) -> ExecutorError:
        return ExecutorError("closed", "executor", "has been closed")

    def _discard(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.close_pipes()
            self._child = None


class _Child:
    """Process with its two pipes. ``ready`` is its first message, empty before that."""

    def __init__(self, command: list[str], variables: dict[str, str], workdir: Path, processes: int) -> None:
        self.ready: dict[str, Any] = {}
        self._exit_code = PROCESS_LOST if processes > 1 else "crashed"
        self._log = workdir / "executor.log"
        self._buffer = bytearray()
        inherited = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
        packages = str(Path(zoo_compute.__file__).resolve().parents[1])
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                # -P: do not import from the working directory
                [sys.executable, "-P", "-m", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                cwd=workdir,
                # The parent's environment can contain keys, so only these variables are passed.
                env=inherited | {"PYTHONPATH": packages, "TMPDIR": str(workdir)} | variables,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(encode_frame(message))
        except OSError:
            raise self._exit_error() from None

    def receive(self, deadline: float) -> dict[str, Any]:
        """Return the next message.

        Raises:
            TimeoutError: no message by ``deadline`` (monotonic seconds).
            ExecutorError: ``crashed``: the process ended or sent a malformed message.
        """
        assert self._process.stdout is not None
        while True:
            try:
                message = take_frame(self._buffer)
            except ValueError as error:
                raise ExecutorError("crashed", "executor", f"the child sent a malformed message: {error}") from None
            if message is not None:
                return message
            readable, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise TimeoutError
            chunk = os.read(self._process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise self._exit_error()
            self._buffer += chunk

    def kill(self) -> None:
        """Kill the process group; harmless if the process has ended."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _exit_error(self) -> ExecutorError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        ended_itself = not self.alive
        self.kill()
        status = self._process.returncode
        with self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - _LOG_TAIL_BYTES))
            end = log.read().decode(errors="replace").strip()
        cause = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        # The system kills the process with the most memory when none is left.
        killed = ended_itself and status == -signal.SIGKILL
        is_short = sandbox.is_allocation_failure(end) or (killed and self._exit_code != PROCESS_LOST)
        code = "out_of_memory" if is_short else self._exit_code
        last_words = end.rpartition("\n")[2]
        return ExecutorError(code, "executor", f"the child ended with {cause}. {last_words}".strip())
