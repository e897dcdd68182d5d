"""Node agent: joins the market, leases work and runs it. Outbound HTTP only.

Threads:

- main: one long poll for the work of all idle threads, which is the heartbeat, and the node's lifecycle;
- background services (``background_services.py``), which start before the node joins: claims, disputes, attestations;
- one per entry of ``_THREADS``: reveals have a short deadline, so they do not wait for training.
  A thread that gets idle during the main thread's poll polls for itself until that one ends;
- ``deliver``: uploads units of jobs with ``round_delay`` while the next unit trains.
"""

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from training_gym.runtime.profile import ExecutionProfile
from zoo_compute.base.errors import ApiError, Unreachable, ZooError
from zoo_compute.base.link import Link
from zoo_compute.chain.wallet import Wallet
from zoo_compute.client.http import Connection
from zoo_compute.node.background_services import BackgroundServices, ErrorThrottle, NodeComponents
from zoo_compute.node.config import NodeConfig
from zoo_compute.node.disk.files import DISK_REFUSES, is_disk_full
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.execution import hardware
from zoo_compute.node.execution.executor import Executor, ExecutorError
from zoo_compute.node.lifecycle import NodeLifecycle
from zoo_compute.node.market.calls import WALLET_IN_USE, Lease, Market, PollAnswer
from zoo_compute.node.work.acknowledgements import Acknowledgements, Journal, NotAcknowledged
from zoo_compute.node.work.held_lease import HeldLease, LeaseLost
from zoo_compute.node.work.states import STATE_ERRORS
from zoo_compute.node.work.worker import LinkTooSlow, Worker
from zoo_protocol.messages import Domain

log = logging.getLogger(__name__)

_BACKGROUND = ("publish", "follow")
_Kinds = tuple[str, ...]
_THREADS: dict[str, list[_Kinds]] = {
    "provider": [("train",), ("reveal",), ("pin",), _BACKGROUND],
    "verifier": [("replay", "evaluate")],
}
"""Lease kinds of each worker thread, by role."""
_NICENESS = 10  # of the publish and follow thread
_MAX_POLL_SECONDS = 30.0
_POLL_PER_TIMEOUT = 2 / 3  # the rest is for a lost answer and a repeated poll
_RETRY_SECONDS = 1.0
_REGISTERING_SECONDS = 0.5
_ROOM_SECONDS = 10.0  # between two checks of a full disk
_GIB = 1 << 30
_TASK_ERRORS = (*STATE_ERRORS, NotAcknowledged, LinkTooSlow, *DISK_REFUSES)
"""Errors on which the node gives a lease up."""

_T = TypeVar("_T")

MakeExecutor = Callable[[ExecutionProfile, int, Path, int], Executor]
"""Builds the executor from (profile, bytes of memory, directory, processes)."""

MakeWorker = Callable[..., Worker]
"""Builds the worker from the fields of :class:`Worker`."""


class NodeAgent:
    """One node. ``run`` returns after ``stop`` was called.

    Raises:
        GymError: the profile is unknown.
        OSError, sqlite3.Error: the directory cannot be used. A full disk does not raise.
    """

    def __init__(
        self,
        config: NodeConfig,
        wallet: Wallet,
        make_executor: MakeExecutor = Executor,
        make_worker: MakeWorker = Worker,
    ) -> None:
        self._config = config
        self._make_worker = make_worker
        self._wallet = wallet
        self._workspace = Workspace(config.state_dir)
        self._journal = Journal(self._workspace.acknowledgements)
        profile = hardware.profile(config.profile)
        processes = hardware.processes(profile) if config.processes is None else config.processes
        self._executor = make_executor(profile, config.memory_gb * _GIB, self._workspace.executor, processes)
        self._link = Link(config.link_mbps)
        self._connection = Connection(config.api_url, wallet=wallet, link=self._link)
        self._market = Market(self._connection, *self._workspace.new_session())
        self._parts = NodeComponents(
            config, wallet, self._workspace, self._journal, self._connection, self._market, self._executor, self._link
        )
        self._services = BackgroundServices(self._parts, self._fail)
        self._stopping = threading.Event()
        self._idle: set[_Kinds] = set()  # kinds of the threads for which the main thread polls
        self._polled_until = 0.0  # end of the main thread's present poll
        self._idle_lock = threading.Lock()  # of both
        self._poll_seconds = 0.0  # length of the main thread's next poll
        self._inboxes = {kinds: SimpleQueue[Lease | None]() for kinds in _THREADS[config.role]}
        self._unanswered: set[str] = set()  # leases whose final call the market did not answer
        self._deliveries = ThreadPoolExecutor(1, thread_name_prefix="deliver")
        self._last_status = "", ""  # status and reason
        self._throttle = ErrorThrottle()
        self._failure: Exception | None = None
        self._has_disk_space()

    def stop(self) -> None:
        """Stop soon and give leases back to the market. Safe in a signal handler."""
        self._stopping.set()
        self._services.stop()
        self._connection.stop()
        self._link.stop()
        self._executor.close()

    def run(self) -> None:
        """Join the market and work until stopped.

        Raises:
            ZooError: this node cannot join, and a retry does not help.
            ExecutorError: the training process does not start.
        """
        threads: list[threading.Thread] = []
        try:
            self._services.resume()
            lifecycle = self._join() if self._wait_for_disk_space() else None
            if lifecycle is not None:
                self._services.use_network(lifecycle.network)
                with closing(lifecycle):
                    threads = self._start_workers(lifecycle)
                    while not self._stopping.is_set():
                        self._stopping.wait(self._advance(lifecycle))
        except Exception as error:  # a defect stops the whole node, as in the other threads
            self._fail(error)
        for inbox in self._inboxes.values():
            inbox.put(None)
        for thread in threads:
            thread.join()
        self._services.join()
        self._deliveries.shutdown()
        if self._failure is not None:
            raise self._failure
        log.info("stopped")

    def _fail(self, error: Exception) -> None:
        """Stop the node; :meth:`run` raises ``error``."""
        self._failure = error
        self.stop()

    def _wait_for_disk_space(self) -> bool:
        """Wait for disk space, then start the executor; False if stopped before that."""
        while not self._has_disk_space():
            self._clean_up()
            if self._stopping.wait(_ROOM_SECONDS):
                return False
        self._executor.start()
        return True

    def _has_disk_space(self) -> bool:
        """Return True if the disk has room. Raises OSError, sqlite3.Error on refusals."""
        try:
            self._workspace.open_store()
        except DISK_REFUSES as error:
            if not is_disk_full(error):
                raise
            self._throttle.warn(
                f"disk_full directory={self._config.state_dir} error={str(error)!r}: no work until there is "
                "room; disputes and claims continue. Free space there, or move the directory to another disk."
            )
            return False
        return True

    def _join(self) -> NodeLifecycle | None:
        """Register with the market; None if stopped before that."""
        while not self._stopping.is_set():
            try:
                lifecycle = NodeLifecycle(self._config, self._market, self._wallet, self._executor)
                lifecycle.environment_class = self._executor.environment_class
                self._poll(lifecycle)  # first: a refused node must not alter the registration of the other one
                lifecycle.register(lifecycle.environment_class)
                return lifecycle
            except Unreachable as error:
                log.info("waiting_for_market error=%s", error.detail)
                self._stopping.wait(_RETRY_SECONDS)
            except ExecutorError:
                if not self._stopping.is_set():
                    raise
        return None

    def _advance(self, lifecycle: NodeLifecycle) -> float:
        """Poll for the idle threads and act on the answer; returns the seconds until the next poll."""
        try:
            answer = self._poll_for_idle_threads(lifecycle)
            if self._last_status != (answer["status"], answer["reason"]):
                self._last_status = answer["status"], answer["reason"]
                self._services.run_referee_duties()
                log.info("status_changed status=%s reason=%s", answer["status"], answer["reason"])
            if self._config.role == "provider":
                lifecycle.log_verifier_count(answer["verifiers_of_class"])
            lifecycle.advance(answer["status"], must_prove=answer["benchmark_by"] is not None)
        except ZooError as error:
            if error.code == WALLET_IN_USE:  # two nodes that sign with one wallet risk its stake
                raise
            if not self._stopping.is_set():  # a stop ends the poll
                self._throttle.warn(f"{error} {error.remedy or ''}")
            return _RETRY_SECONDS
        except OSError as error:  # for example a full disk: tidying frees space
            log.warning("heartbeat_failed error=%s", error)
            self._clean_up()
            return _RETRY_SECONDS
        self._clean_up()
        return 0.0

    def _poll_for_idle_threads(self, lifecycle: NodeLifecycle) -> dict[str, Any]:
        with self._idle_lock:
            kinds = [kind for idle in self._idle for kind in idle]
            self._polled_until = time.monotonic() + self._poll_seconds
        try:
            answer, lease = self._poll(lifecycle, kinds, self._poll_seconds)
        finally:
            self._polled_until = 0.0
        if lease is not None:
            with self._idle_lock:
                idle = next(idle for idle in self._idle if lease.kind in idle)
                self._idle.remove(idle)
            self._inboxes[idle].put(lease)
        is_registering = answer["status"] in ("registered", "benchmarked")
        longest = min(_MAX_POLL_SECONDS, answer["next_within_seconds"] * _POLL_PER_TIMEOUT)
        self._poll_seconds = _REGISTERING_SECONDS if is_registering else longest
        return answer

    def _clean_up(self) -> None:
        try:
            disputes = self._services.disputes
            keep_seconds, now = (None, None) if disputes is None else (disputes.trace_retention_seconds, disputes.now)
            self._workspace.tidy(self._config.keep_hours, keep_seconds or math.inf, now)
        except OSError as error:  # another thread moved or removed a file; the next beat tidies again
            log.info("tidy_incomplete error=%s", error)

    def _poll(self, lifecycle: NodeLifecycle, kinds: Sequence[str] = (), seconds: float = 0.0) -> PollAnswer:
        try:
            return self._market.poll(lifecycle.sign_challenge, kinds, seconds)
        except ApiError as error:
            if error.code != "not-registered":
                raise
            lifecycle.register(lifecycle.environment_class)  # the executor can be busy for hours
            return self._market.poll(lifecycle.sign_challenge, kinds, seconds)

    def _start_workers(self, lifecycle: NodeLifecycle) -> list[threading.Thread]:
        network = lifecycle.network
        worker = self._make_worker(
            market=self._market,
            wallet=self._wallet,
            domain=Domain(network.chain_id, network.contracts["JobEscrow"]),
            workspace=self._workspace,
            gateway=self._parts.gateway(network),
            link=self._link,
            executor=self._executor,
            acknowledgements=Acknowledgements(self._journal, network, self._parts.omission_chain(network)),
        )
        threads = []
        remembered = self._workspace.stored_leases()
        for kinds in _THREADS[self._config.role]:
            resumed = sorted((one for one in remembered if one.kind in kinds), key=lambda one: one.task.get("round", 0))
            arguments = (worker, lifecycle, kinds, resumed)
            threads.append(threading.Thread(target=self._work, args=arguments, name=kinds[0]))
            threads[-1].start()
        return threads

    def _work(self, worker: Worker, lifecycle: NodeLifecycle, kinds: _Kinds, resumed: list[Lease]) -> None:
        """Resume the remaining leases, then lease work until stopped. A defect stops the whole node."""
        try:
            if kinds == _BACKGROUND:
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
            for lease in resumed:
                log.info("lease_resumed kind=%s id=%s", lease.kind, lease.id)
                self._process_lease(worker, lease)
            while not self._stopping.is_set():
                pulled = self._next_lease(lifecycle, kinds)
                if pulled is not None:
                    self._process_lease(worker, pulled)
        except Exception as error:
            self._fail(error)

    def _next_lease(self, lifecycle: NodeLifecycle, kinds: _Kinds) -> Lease | None:
        """Wait for work of these kinds; None if the node stops, or the thread's own poll found none."""
        with self._idle_lock:
            seconds = self._polled_until - time.monotonic()
            if seconds <= 0:
                self._idle.add(kinds)
        if seconds <= 0:
            return self._inboxes[kinds].get()
        try:
            return self._poll(lifecycle, kinds, seconds)[1]
        except ZooError as error:
            log.warning("no_lease error=%s", error)
            self._stopping.wait(_RETRY_SECONDS)
            return None

    def _process_lease(self, worker: Worker, lease: Lease) -> None:
        with ExitStack() as stack:
            stack.callback(self._delete_lease_record, lease)
            held = stack.enter_context(HeldLease(self._market, lease))

            def begin() -> Callable[[], None] | None:
                self._workspace.store_lease(lease)
                return worker.do(held)

            rest = self._attempt(held, begin)
            if rest is not None:
                self._deliveries.submit(self._finish, held, rest, stack.pop_all())

    def _delete_lease_record(self, lease: Lease) -> None:
        """Forget the lease unless the market did not answer; then the next process resumes it."""
        if lease.id not in self._unanswered:
            self._workspace.forget(lease)

    def _finish(self, held: HeldLease, rest: Callable[[], None], stack: ExitStack) -> None:
        """Deliver a unit while the next one trains. One worker thread keeps the order of rounds."""
        try:
            with stack:
                self._attempt(held, rest)
        except Exception as error:
            self._fail(error)

    def _attempt(self, held: HeldLease, work: Callable[[], _T]) -> _T | None:
        """Return the result of ``work``; None if the lease is lost or given up."""
        lease = held.lease
        try:
            try:
                result = work()
            except _TASK_ERRORS as error:
                self._report_failure(held, error)
                return None
        except (LeaseLost, ApiError) as error:
            log.warning("lease_lost kind=%s id=%s error=%s", lease.kind, lease.id, error)
            return None
        except Unreachable as error:  # only once this node is stopping
            self._unanswered.add(lease.id)
            log.warning("lease_unanswered kind=%s id=%s error=%s", lease.kind, lease.id, error)
            return None
        if result is None:
            log.info("lease_completed kind=%s id=%s %s", lease.kind, lease.id, _place(lease))
        return result

    def _report_failure(self, held: HeldLease, error: Exception) -> None:
        """Report the failure; raises as :meth:`HeldLease.call_until_answered`."""
        lease, code = held.lease, str(getattr(error, "code", "input_missing"))
        if self._stopping.is_set():
            code = "node_stopping"
        log.warning("lease_given_up kind=%s id=%s code=%s error=%s", lease.kind, lease.id, code, error)
        held.call_until_answered(lambda: self._market.fail(lease, code, str(error)))


def _place(lease: Lease) -> str:
    return " ".join(f"{key}={lease.task[key]}" for key in ("round", "slot", "segment") if key in lease.task)
