"""A node: its link, which its transfers share, and the tasks that it works through step by step."""

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum

from benchmarks.simulator.clock import Action, Clock, Timer
from benchmarks.simulator.link import Flow, SharedLink
from benchmarks.simulator.scenario import MBIT, Link


class Step(Enum):
    """What a task does next: let seconds pass, or move bytes."""

    WAIT = 0
    UP = 1
    DOWN = 2


Steps = Iterator[tuple[Step, float]]


class Node:
    """One node.

    Attributes:
        speed: of its device; 1 is the reference.
        alive: whether it is still there.
        model_round: the newest round whose model it has; None before the first.
        follows: whether it has followed the job as a spare.
        asked_for: the last round whose model it was asked to fetch so.
        model_used_at, dataset_used_at: when it last asked for the files that it keeps; None where it has none.
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
        self._shared = {Step.UP: up, Step.DOWN: down}
        self._rate = {Step.UP: link.up_mbps * MBIT, Step.DOWN: link.down_mbps * MBIT}
        self._moving: dict[Step, list[Transfer]] = {Step.UP: [], Step.DOWN: []}
        self._serving: Task | None = None
        self._to_serve: deque[Steps] = deque()

    def start(self, steps: Steps, done: Action) -> "Task":
        """Work through ``steps`` from now on."""
        return Task(self._clock, self, steps, done)

    def serve(self, steps: Steps) -> None:
        """Do ``steps`` beside the training, after what is to be served already: a node has one thread for it."""
        self._to_serve.append(steps)
        if self._serving is None:
            self._serve_next()

    @property
    def unserved(self) -> int:
        """Of the tasks beside the training, those that are not done."""
        return len(self._to_serve) + (self._serving is not None)

    def leave(self) -> None:
        """Gone, and all that was on its way with it; who works with it notices nothing."""
        self.alive = False
        self._to_serve.clear()
        if self._serving is not None:
            self._serving.cancel()

    def move(self, direction: Step, size: float, done: Action) -> "Transfer":
        """Send or fetch ``size`` bytes; all transfers of one direction share the node's link equally."""
        moving, shared = self._moving[direction], self._shared[direction]
        limit = self._rate[direction] / (len(moving) + 1)
        for other in moving:
            other.flow = shared.relimit(other.flow, limit)
        transfer = Transfer(self, direction)
        transfer.flow = shared.begin(size, limit, lambda: self._moved(transfer, done))
        moving.append(transfer)
        return transfer

    def stop(self, transfer: "Transfer") -> None:
        """Give up a transfer that is not done yet."""
        self._shared[transfer.direction].end(transfer.flow)
        self._free(transfer)

    def _moved(self, transfer: "Transfer", done: Action) -> None:
        self._free(transfer)
        done()

    def _free(self, transfer: "Transfer") -> None:
        moving = self._moving[transfer.direction]
        moving.remove(transfer)
        for other in moving:
            other.flow = self._shared[other.direction].relimit(other.flow, self._rate[other.direction] / len(moving))

    def _serve_next(self) -> None:
        self._serving = None
        if self._to_serve:
            self._serving = self.start(self._to_serve.popleft(), self._serve_next)


class Transfer:
    """Bytes between a node and the market's storage."""

    __slots__ = ("direction", "flow", "node")
    flow: Flow

    def __init__(self, node: Node, direction: Step) -> None:
        self.node = node
        self.direction = direction


class Task:
    """Steps that a node takes one after another, then ``done``."""

    def __init__(self, clock: Clock, node: Node, steps: Steps, done: Callable[[], None]) -> None:
        self._clock = clock
        self._node = node
        self._steps = steps
        self._done = done
        self._at: Timer | Transfer | None = clock.after(0.0, self._go_on)

    def cancel(self) -> None:
        """Take no further step."""
        at, self._at = self._at, None
        if isinstance(at, Transfer):
            self._node.stop(at)
        elif at is not None:
            at.cancel()

    def _go_on(self) -> None:
        self._at = None
        for step, amount in self._steps:
            if not amount:
                continue
            if step is Step.WAIT:
                self._at = self._clock.after(amount, self._go_on)
            else:
                self._at = self._node.move(step, amount, self._go_on)
            return
        self._done()
