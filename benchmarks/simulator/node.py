"""A node: its link, shared by its transfers, and the tasks that it executes step by step."""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from enum import Enum

from benchmarks.simulator.clock import Action, Clock, Timer
from benchmarks.simulator.link import Flow, SharedLink
from training_gym.exchange.round_time import MBIT, Link
from zoo_compute.base.link import BACKGROUND_BYTES, LONGEST_PAUSE_SECONDS


class Step(Enum):
    """Next action of a task: wait, or transfer bytes; publishing has the lowest priority."""

    WAIT = 0
    UP = 1
    DOWN = 2
    PUBLISH = 3


MIN_RATE = BACKGROUND_BYTES / LONGEST_PAUSE_SECONDS
"""Bytes per second of low-priority transfers, which keep their connections alive."""
Steps = Iterator[tuple[Step, float]]


class Node:
    """One node.

    Attributes:
        speed: speed of its device; 1 is the reference.
        alive: False once it has left.
        model_round: the newest round whose model it has; None before the first.
        follows: True once it has prefetched as a hot spare.
        asked_for: the last round whose model it was asked to prefetch.
        model_used_at, dataset_used_at: time of the last use of the files that it keeps; None without the file.
    """

    def __init__(self, clock: Clock, up: SharedLink, down: SharedLink, link: Link, speed: float) -> None:
        self.link = link
        self.speed = speed
        self.alive = True
        self.model_round: int | None = None
        self.follows = False
        self.asked_for = -1
        self.model_used_at: float | None = None
        self.dataset_used_at: float | None = None
        self._clock = clock
        self._shared = {Step.UP: up, Step.PUBLISH: up, Step.DOWN: down}
        self._moving: list[Transfer] = []
        self._serving: Task | None = None
        self._to_serve: deque[Steps] = deque()

    def start(self, steps: Steps, done: Action) -> "Task":
        """Start to execute ``steps``."""
        return Task(self._clock, self, steps, done)

    def serve(self, steps: Steps) -> None:
        """Execute ``steps`` in parallel to the training, one after another: a node has one thread."""
        self._to_serve.append(steps)
        if self._serving is None:
            self._serve_next()

    @property
    def unserved(self) -> int:
        """Number of unfinished tasks that run in parallel to the training."""
        return len(self._to_serve) + (self._serving is not None)

    def leave(self) -> None:
        """Leave and drop all parallel tasks, without notice to others."""
        self.alive = False
        self._to_serve.clear()
        if self._serving is not None:
            self._serving.cancel()

    def transfer(self, step: Step, size: float, done: Action) -> "Transfer":
        """Transfer ``size`` bytes; all transfers of one direction share the node's link equally."""
        transfer = Transfer(self, step)
        self._moving.append(transfer)
        self._share(self._moving[:-1])
        transfer.flow = self._shared[step].begin(size, self._limit(step), lambda: self._end_transfer(transfer, done))
        return transfer

    def stop(self, transfer: "Transfer") -> None:
        """Abort an unfinished transfer."""
        self._shared[transfer.step].end(transfer.flow)
        self._free(transfer)

    def _end_transfer(self, transfer: "Transfer", done: Action) -> None:
        self._free(transfer)
        done()

    def _free(self, transfer: "Transfer") -> None:
        self._moving.remove(transfer)
        self._share(self._moving)

    def _share(self, transfers: "list[Transfer]") -> None:
        for one in transfers:
            limit = self._limit(one.step)
            if one.flow.limit != limit:
                one.flow = self._shared[one.step].relimit(one.flow, limit)

    def _limit(self, step: Step) -> float:
        count = Counter(one.step for one in self._moving)
        if step is Step.DOWN:
            return self.link.down_mbps * MBIT / count[step]
        rate, gives_way = self.link.up_mbps * MBIT, count[Step.PUBLISH] < len(self._moving)
        least = min(MIN_RATE, rate / (count[Step.UP] + count[Step.PUBLISH]))  # at most an equal share
        if step is Step.PUBLISH:
            return least if gives_way else rate / count[step]
        return (rate - count[Step.PUBLISH] * least) / count[step]

    def _serve_next(self) -> None:
        self._serving = None
        if self._to_serve:
            self._serving = self.start(self._to_serve.popleft(), self._serve_next)


class Transfer:
    """Bytes between a node and the market's storage."""

    __slots__ = ("flow", "node", "step")
    flow: Flow

    def __init__(self, node: Node, step: Step) -> None:
        self.node = node
        self.step = step


class Task:
    """Steps that a node executes in order, then ``done``."""

    def __init__(self, clock: Clock, node: Node, steps: Steps, done: Callable[[], None]) -> None:
        self._clock = clock
        self._node = node
        self._steps = steps
        self._done = done
        self._at: Timer | Transfer | None = clock.after(0.0, self._advance)

    def cancel(self) -> None:
        """Stop before the next step."""
        at, self._at = self._at, None
        if isinstance(at, Transfer):
            self._node.stop(at)
        elif at is not None:
            at.cancel()

    def _advance(self) -> None:
        self._at = None
        for step, amount in self._steps:
            if not amount:
                continue
            if step is Step.WAIT:
                self._at = self._clock.after(amount, self._advance)
            else:
                self._at = self._node.transfer(step, amount, self._advance)
            return
        self._done()
