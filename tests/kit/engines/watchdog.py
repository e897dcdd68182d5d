"""Ends the engines of a test process that is killed before it ends them itself.

The test process sends each engine's id to this watchdog process through a pipe. When the kernel closes the pipe,
the watchdog kills the engines that are left.
"""

import subprocess
import sys
from functools import cache

import psutil

_SAME_SECONDS = 1.0


def watch(pid: int) -> None:
    """End the process ``pid`` and its children when this process ends."""
    pipe = _watchdog().stdin
    assert pipe is not None
    pipe.write(f"{pid} {psutil.Process(pid).create_time()}\n".encode())
    pipe.flush()


@cache
def _watchdog() -> "subprocess.Popen[bytes]":
    # A session of its own survives a kill of the test's process group.
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, start_new_session=True, **quiet)


def _end(pid: int, create_time: float) -> None:
    try:
        engine = psutil.Process(pid)
        if abs(engine.create_time() - create_time) > _SAME_SECONDS:
            return  # the process id was reused
        for process in (*engine.children(recursive=True), engine):
            process.kill()
    except psutil.NoSuchProcess:
        return


def main() -> None:
    """Read process ids until the test process ends, then end them."""
    engines = [line.split() for line in sys.stdin]
    for pid, create_time in engines:
        _end(int(pid), float(create_time))


if __name__ == "__main__":
    main()
