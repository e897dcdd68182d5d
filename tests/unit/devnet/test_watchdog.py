"""The engines of a killed test run end with it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
from kit.waiting import is_alive, wait_until

TESTS = Path(__file__).parents[2]
PROGRAM = """
import signal
from kit.chain.anvil import AnvilProcess
engine = AnvilProcess()
print(engine._process.pid, flush=True)
signal.pause()
"""


def test_engine_ends_with_killed_test_process() -> None:
    environment = os.environ | {"PYTHONPATH": f"{TESTS}:{TESTS.parent}"}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, env=environment) as tests:
        assert tests.stdout is not None
        engine = psutil.Process(int(tests.stdout.readline()))
        assert engine.is_running()
        tests.send_signal(signal.SIGKILL)
    wait_until(lambda: not is_alive(engine))
