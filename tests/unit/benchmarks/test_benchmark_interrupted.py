import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from kit.waiting import wait_until

ROOT = Path(__file__).parents[3]


FORGETS = """
import subprocess, sys, time
from benchmarks.report import run

def measure(quick):
    print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
    time.sleep(600)

run("x", measure, arguments=[])
"""
"""A benchmark that keeps no handle of its process, as if the signal came during its start."""
WAITS = """
import time
from benchmarks.report import report_options

report_options("x").parse_args([])
print("started", flush=True)
time.sleep(600)
"""


def test_interrupted_benchmark_ends_unknown_process() -> None:
    command = [sys.executable, "-c", FORGETS]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as benchmark:
        assert benchmark.stdout is not None
        child = psutil.Process(int(benchmark.stdout.readline()))
        benchmark.terminate()
        assert benchmark.wait(120) == 128 + signal.SIGTERM
    assert psutil.wait_procs([child], timeout=60)[1] == []


def test_interrupted_benchmark_prints_no_traceback() -> None:
    command = [sys.executable, "-c", WAITS]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True) as benchmark:
        assert benchmark.stdout is not None
        assert benchmark.stdout.readline() == "started\n"
        benchmark.send_signal(signal.SIGINT)
        assert benchmark.communicate(timeout=120)[1] == ""
    assert benchmark.returncode == 128 + signal.SIGINT


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_benchmark_leaves_no_process(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "benchmarks.averaging", "--quick"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # a shell's background jobs ignore SIGINT
    ) as benchmark:
        parent = psutil.Process(benchmark.pid)

        def started() -> list[psutil.Process]:
            assert benchmark.poll() is None
            found = parent.children(recursive=True)
            return found if len(found) >= 3 else []  # the store and two workers at least

        children = wait_until(started, seconds=300)
        benchmark.send_signal(number)
        assert benchmark.wait(300) != 0
    gone, alive = psutil.wait_procs(children, timeout=120)
    assert not alive
    assert gone
