"""The provider or verifier node: keeps its standing in the market, pulls work, does it. Outbound HTTP only.

Threads: this one heartbeats and moves the node's standing on, one does what may wait for the chain (chores: claims,
answers to disputes, attestations), and one computes (train or replay). A provider has more: one shows what was drawn
(reveal), which is due soon and must wait for nothing else, one keeps copies (pin), one moves what nobody waits for
(publish, follow), one makes states of disputed units available, and one delivers units of jobs with ``round_delay``
while the next ones are trained. A verifier's other one judges disputes. What waits for the chain, and the court, are in
``watching.py``: they begin before the node has joined.
"""

import logging
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from training_gym.runtime.profile import ExecutionProfile
from training_gym.spec.errors import GymError
from zoo_compute.base.errors import ApiError, Unreachable, ZooError
from zoo_compute.base.link import Link
from zoo_compute.chain.wallet import Wallet
from zoo_compute.client.http import Connection
from zoo_compute.content.blockstore import BlockNotFound
from zoo_compute.content.gateway import GatewayUnavailable
from zoo_compute.node.background_services import BackgroundServices, Parts
from zoo_compute.node.config import NodeConfig
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.execution import hardware
from zoo_compute.node.execution.executor import Executor, ExecutorError
from zoo_compute.node.lifecycle import NodeLifecycle
from zoo_compute.node.market.calls import WALLET_IN_USE, Lease, Market
from zoo_compute.node.periodic_tasks import DISK_REFUSES, ErrorThrottle, is_out_of_room
from zoo_compute.node.work.acknowledgements import Acknowledgements, Journal, NotAcknowledged
from zoo_compute.node.work.held_lease import HeldLease, LeaseLost
from zoo_compute.node.work.inputs import SlotStateMissing
from zoo_compute.node.work.states import StateUnavailable
from zoo_compute.node.work.worker import LinkTooSlow, Worker
from zoo_protocol.content.cid import ContentError
from zoo_protocol.messages import Domain

log = logging.getLogger(__name__)

_BACKGROUND = ("publish", "follow")
_THREADS = {"provider": (("train",), ("reveal",), ("pin",), _BACKGROUND), "verifier": (("replay",),)}
"""By role, the kinds of leases that each thread takes."""
_NICENESS = 10  # of the background thread
_POLL_SECONDS = 2.0  # how long the market may hold a poll; a stop waits for it
_RETRY_SECONDS = 1.0
_JOINING_SECONDS = 0.5
_BEATS_PER_SILENCE = 4
_ROOM_SECONDS = 10.0  # between two looks for room on a full disk
_GIB = 1 << 30
_CANNOT_BE_DONE = (
    ExecutorError,
    GymError,
    ContentError,
    BlockNotFound,
    GatewayUnavailable,
    NotAcknowledged,
    SlotStateMissing,
    LinkTooSlow,
    StateUnavailable,
    *DISK_REFUSES,
)
"""What a lease is given up for."""

_T = TypeVar("_T")

MakeExecutor = Callable[[ExecutionProfile, int, Path], Executor]
"""(profile, bytes of memory, directory) -> what runs training tasks."""

MakeWorker = Callable[..., Worker]
"""The fields of a :class:`Worker` -> what does the work of leases."""


class NodeAgent:
    """One node. ``run`` returns once ``stop`` was called.

    Args:
        make_executor: makes what runs training tasks.
        make_worker: makes what does the work of leases.

    Raises:
        GymError: no such profile.
        OSError, sqlite3.Error: the directory cannot be used; being full is no reason.
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
        self._executor = make_executor(
            hardware.profile(config.profile), config.memory_gb * _GIB, self._workspace.executor
        )
        self._link = Link(config.link_mbps)
        self._connection = Connection(config.api_url, wallet=wallet, link=self._link)
        self._market = Market(self._connection, *self._workspace.new_session())
        self._parts = Parts(
            config, wallet, self._workspace, self._journal, self._connection, self._market, self._executor, self._link
        )
        self._watch = BackgroundServices(self._parts, self._fail)
        self._stopping = threading.Event()
        self._at_work = 0  # threads that have a lease at hand
        self._counting = threading.Lock()
        self._unanswered: set[str] = set()  # leases that this process could not bring to an end with the market
        self._deliveries = ThreadPoolExecutor(1, thread_name_prefix="deliver")
        self._said = "", ""  # status and reason, as last told
        self._trouble = ErrorThrottle()
        self._failure: Exception | None = None
        self._has_room()

    @property
    def is_busy(self) -> bool:
        """Whether any lease is being worked on, as heartbeats say."""
        return self._at_work > 0

    def stop(self) -> None:
        """End soon: work at hand is given back to the market. May be called from a signal handler."""
        self._stopping.set()
        self._watch.stop()
        self._connection.hurry()
        self._link.stop()
        self._executor.close()

    def run(self) -> None:
        """Join the market and work until stopped.

        Raises:
            ZooError: this node cannot join, and waiting will not help.
            ExecutorError: the training process does not start.
        """
        threads: list[threading.Thread] = []
        try:
            self._watch.resume()
            standing = self._join() if self._take_room() else None
            if standing is not None:
                self._watch.follow(standing.network)
                with closing(standing):
                    threads = self._start_work(standing)
                    while not self._stopping.is_set():
                        self._stopping.wait(self._keep_standing(standing))
        except Exception as error:  # a defect here stops the whole node, as one in any other thread does
            self._fail(error)
        for thread in threads:
            thread.join()
        self._watch.join()
        self._deliveries.shutdown()
        if self._failure is not None:
            raise self._failure
        log.info("stopped")

    def _fail(self, error: Exception) -> None:
        """End for a reason that :meth:`run` raises."""
        self._failure = error
        self.stop()

    def _take_room(self) -> bool:
        """Wait until there is room for work, and begin to load what trains; False if stopped before that."""
        while not self._has_room():
            self._tidy()
            if self._stopping.wait(_ROOM_SECONDS):
                return False
        self._executor.start()
        return True

    def _has_room(self) -> bool:
        """Whether the disk has the room that any work takes.

        Raises:
            OSError, sqlite3.Error: the disk refuses for another reason.
        """
        try:
            self._workspace.open_store()
        except DISK_REFUSES as error:
            if not is_out_of_room(error):
                raise
            self._trouble.tell(
                f"no room on the disk of {self._config.state_dir} ({error}): until there is some, this node takes no "
                "work, and only looks after its disputes and its pay. Make room there, or move the directory to "
                "another disk: what a node need not keep it has removed"
            )
            return False
        return True

    def _join(self) -> NodeLifecycle | None:
        """Registered standing; None if stopped before that."""
        while not self._stopping.is_set():
            try:
                standing = NodeLifecycle(self._config, self._market, self._wallet, self._executor)
                self._market.acquire_wallet(standing.sign_challenge)
                standing.register(self._executor.environment_class)
                return standing
            except Unreachable as error:
                log.info("waiting for the market: %s", error.detail)
                self._stopping.wait(_RETRY_SECONDS)
            except ExecutorError:
                if not self._stopping.is_set():
                    raise
        return None

    def _keep_standing(self, standing: NodeLifecycle) -> float:
        """One heartbeat and what follows from it; returns the seconds until the next."""
        try:
            said = self._heartbeat(standing)
            if self._said != (said["status"], said["reason"]):
                self._said = said["status"], said["reason"]
                self._watch.run_referee_duties()
                log.info("status: %s (%s)", said["status"], said["reason"] or "no reason given")
            if self._config.role == "provider":
                standing.note_verifiers(said["verifiers_of_class"])
            standing.advance(said["status"], must_prove=said["benchmark_by"] is not None)
        except ZooError as error:
            if error.code == WALLET_IN_USE:  # what two of them sign and promise side by side costs the stake
                raise
            self._trouble.tell(f"{error} {error.remedy or ''}")
            return _RETRY_SECONDS
        except OSError as error:  # a full disk, say: tidying makes room
            log.warning("%s", error)
            self._tidy()
            return _RETRY_SECONDS
        self._tidy()
        joining = said["status"] in ("registered", "benchmarked")
        return _JOINING_SECONDS if joining else float(said["next_within_seconds"]) / _BEATS_PER_SILENCE

    def _tidy(self) -> None:
        try:
            watched = self._watch.disputes
            keep_seconds, now = (None, None) if watched is None else (watched.keep_seconds, watched.now)
            self._workspace.tidy(self._config.keep_hours, keep_seconds or math.inf, now)
        except OSError as error:  # another thread moved or removed something meanwhile; the next beat tidies again
            log.info("not all was tidied: %s", error)

    def _heartbeat(self, standing: NodeLifecycle) -> dict[str, Any]:
        try:
            return self._market.heartbeat(self.is_busy, standing.sign_challenge)
        except ApiError as error:
            if error.code != "not-registered":
                raise
            standing.register(standing.environment_class)  # the executor may be at a unit for long
            return self._market.heartbeat(self.is_busy, standing.sign_challenge)

    def _start_work(self, standing: NodeLifecycle) -> list[threading.Thread]:
        network = standing.network
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
        remembered = self._workspace.remembered()
        for kinds in _THREADS[self._config.role]:
            left = sorted((one for one in remembered if one.kind in kinds), key=lambda one: one.task.get("round", 0))
            threads.append(threading.Thread(target=self._work, args=(worker, kinds, left), name=kinds[0]))
            threads[-1].start()
        return threads

    def _work(self, worker: Worker, kinds: Sequence[str], left: list[Lease]) -> None:
        """Take up the leases that were left, then pull work until stopped; a defect stops the whole node."""
        try:
            if kinds == _BACKGROUND:
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
            self._work_until_stopped(worker, kinds, left)
        except Exception as error:
            self._fail(error)

    def _work_until_stopped(self, worker: Worker, kinds: Sequence[str], left: list[Lease]) -> None:
        for lease in left:
            log.info("taking up %s lease %s again", lease.kind, lease.id)
            self._do(worker, lease)
        while not self._stopping.is_set():
            try:
                pulled = self._market.next_lease(list(kinds), _POLL_SECONDS)
            except ZooError as error:
                log.warning("no work: %s", error)
                self._stopping.wait(_RETRY_SECONDS)
                continue
            if pulled is not None:
                self._do(worker, pulled)

    def _do(self, worker: Worker, lease: Lease) -> None:
        """One lease, to its end: completed, given up with a reason, or lost."""
        with ExitStack() as stack:
            stack.callback(self._forget, lease)
            held = stack.enter_context(HeldLease(self._market, lease))

            def begin() -> Callable[[], None] | None:
                self._workspace.remember(lease)
                return worker.do(held)

            with self._working():
                rest = self._attempt(held, begin)
            if rest is not None:
                self._deliveries.submit(self._finish, held, rest, stack.pop_all())

    def _forget(self, lease: Lease) -> None:
        """Unless the market never answered: the next process here takes the lease up again."""
        if lease.id not in self._unanswered:
            self._workspace.forget(lease)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Its threads work side by side: the node is busy until the last of them is done."""
        with self._counting:
            self._at_work += 1
        try:
            yield
        finally:
            with self._counting:
                self._at_work -= 1

    def _finish(self, held: HeldLease, rest: Callable[[], None], stack: ExitStack) -> None:
        """Deliver a unit while the next one is trained; one after another, in the order of their rounds."""
        try:
            with stack:
                self._attempt(held, rest)
        except Exception as error:
            self._fail(error)

    def _attempt(self, held: HeldLease, work: Callable[[], _T]) -> _T | None:
        """What ``work`` gives; None if the lease is lost by it, or was given up."""
        lease = held.lease
        try:
            try:
                result = work()
            except _CANNOT_BE_DONE as error:
                self._give_up(held, error)
                return None
        except (LeaseLost, ApiError) as error:
            log.warning("%s lease %s lost: %s", lease.kind, lease.id, error)
            return None
        except Unreachable as error:  # until this node was told to stop
            self._unanswered.add(lease.id)
            log.warning("%s lease %s left as it is: %s", lease.kind, lease.id, error)
            return None
        if result is None:
            log.info("%s lease %s done: %s", lease.kind, lease.id, _place(lease))
        return result

    def _give_up(self, held: HeldLease, error: Exception) -> None:
        """Say so to the market, which takes silence for worse; raises as :meth:`HeldLease.insist`."""
        lease, code = held.lease, str(getattr(error, "code", "input_missing"))
        if self._stopping.is_set():
            code = "node_stopping"
        log.warning("%s lease %s given up: %s: %s", lease.kind, lease.id, code, error)
        held.call_until_answered(lambda: self._market.fail(lease, code, str(error)))


def _place(lease: Lease) -> str:
    return ", ".join(f"{key} {lease.task[key]}" for key in ("round", "slot", "segment") if key in lease.task)
