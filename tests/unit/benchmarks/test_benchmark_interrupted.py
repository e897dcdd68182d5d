import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_benchmark_that_is_ended_leaves_no_process_behind(number: signal.Signals) -> None:
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
        while len(children := parent.children(recursive=True)) < 3:  # the store and two workers at least
            assert benchmark.poll() is None
            time.sleep(0.05)
        benchmark.send_signal(number)
        assert benchmark.wait(300) != 0
    gone, alive = psutil.wait_procs(children, timeout=120)
    assert not alive
    assert gone
