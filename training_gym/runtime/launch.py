"""Processes of one machine that work for one leader. No torch.

The leader forks them before it loads any library or starts a thread. A follower ends with its leader, and the leader
learns at once that it lost one, whatever either of them does.
"""

import ctypes
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection, Pipe
from typing import Any

PROCESS_LOST = "process_lost"
"""Reason code of a unit that lost one of its processes."""
_PR_SET_PDEATHSIG = 1

Receive = Callable[[], Any]
Serve = Callable[[int, Receive], None]
"""(rank, source of the leader's messages): serves until it raises."""


class Followers:
    """Processes 1 to ``count - 1`` of a group; this process, which creates it, is process 0.

    Args:
        count: all processes, this one included.
        serve: runs in each follower.
        describe: returns an exception of ``serve`` as the message of :meth:`watch`.
    """

    def __init__(self, count: int, serve: Serve, describe: Callable[[Exception], dict[str, str]]) -> None:
        self.count = count
        self._pids: list[int] = []
        self._requests: list[Connection] = []
        self._failures: list[Connection] = []
        leader = os.getpid()
        for rank in range(1, count):
            receiving, sending = Pipe(duplex=False)
            reading, writing = Pipe(duplex=False)
            pid = os.fork()
            if pid == 0:
                for other in (sending, reading, *self._requests, *self._failures):
                    other.close()
                _run(leader, writing, describe, partial(serve, rank, receiving.recv))
            receiving.close()
            writing.close()
            self._pids.append(pid)
            self._requests.append(sending)
            self._failures.append(reading)

    def send(self, count: int, message: object) -> None:
        """Send a message to the processes 1 to ``count - 1``; a lost one is left to :meth:`watch`."""
        for pipe in self._requests[: count - 1]:
            try:
                pipe.send(message)
            except OSError:
                return

    def watch(self, lost: Callable[[dict[str, str]], None]) -> None:
        """Call ``lost`` from a thread with code, field and message once a follower has ended."""
        for rank, pid in enumerate(self._pids, start=1):
            threading.Thread(target=self._wait, args=(rank, pid, lost), name=f"follower-{rank}", daemon=True).start()

    def end(self) -> None:
        """Kill all followers."""
        for pid in self._pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def _wait(self, rank: int, pid: int, lost: Callable[[dict[str, str]], None]) -> None:
        _, status = os.waitpid(pid, 0)
        try:
            failure = self._failures[rank - 1].recv()
        except EOFError:
            cause = f"with status {os.waitstatus_to_exitcode(status)}"
            failure = {"code": PROCESS_LOST, "field": "executor", "message": f"process {rank} ended {cause}"}
        lost(failure)


def _run(leader: int, writing: Connection, describe: Callable[[Exception], dict[str, str]], work: Receive) -> None:
    """Run ``work`` in a new process and end it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != leader:  # it ended before the call
        os._exit(1)
    try:
        work()
    except Exception as error:  # the leader receives every failure by code
        traceback.print_exc(file=sys.stderr)
        writing.send(describe(error))
    finally:
        sys.stderr.flush()
        os._exit(1)
