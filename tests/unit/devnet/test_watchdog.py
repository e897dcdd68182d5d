"""The engines of a killed test run end with it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

TESTS = Path(__file__).parents[2]
PROGRAM = """
import time
from kit.chain.anvil import AnvilProcess
engine = AnvilProcess()
print(engine._process.pid, flush=True)
time.sleep(600)
"""


def test_an_engine_ends_with_a_test_process_that_is_killed() -> None:
    environment = os.environ | {"PYTHONPATH": f"{TESTS}:{TESTS.parent}"}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, env=environment) as tests:
        assert tests.stdout is not None
        engine = psutil.Process(int(tests.stdout.readline()))
        assert engine.is_running()
        tests.send_signal(signal.SIGKILL)
    until = time.monotonic() + 60
    while psutil.pid_exists(engine.pid) and engine.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.05)
