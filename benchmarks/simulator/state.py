"""What the market knows of a job's rounds: slots, units, and how long recent ones took.

Counts are kept as units come and go: a round of ten thousand units is looked at whenever one of them is lost or a node
comes, so that nothing here may go through all of them.
"""

from collections import Counter, deque
from dataclasses import dataclass, field

from benchmarks.simulator.clock import Timer
from benchmarks.simulator.node import Node, Task
from market.training.rounds.state import DEADLINE_ROUNDS
from training_gym.exchange import deadlines


@dataclass(slots=True)
class Slot:
    """One of the job's places. ``uploading``: who is sending its state."""

    holder: Node | None = None
    has_state: bool = False
    uploading: Node | None = None


@dataclass(slots=True, eq=False)
class Unit:
    """One slot's unit of one round, with the node that does it."""

    state: "State"
    slot: int
    node: Node
    offered_at: float
    task: Task | None = None
    committed: bool = False
    delivered: bool = False
    overdue: Timer | None = None

    def stop(self) -> None:
        """Nothing more is done for it."""
        if self.task is not None:
            self.task.cancel()
        if self.overdue is not None:
            self.overdue.cancel()


@dataclass(slots=True, eq=False)
class State:
    """Of the round at hand or the next: units by slot (lost ones are gone), counts, and what its nodes failed.

    ``infeasible``: of the open units, those that are not awaited: offered too late, and not committed. ``offered``: how
    many units were, lost ones too; ``began_at``: when a quorum of them was. ``taken``: seconds from offer to delivery.
    """

    number: int
    expected: int
    opened_at: float = 0.0
    units: dict[int, Unit] = field(default_factory=dict)
    open: int = 0
    delivered: int = 0
    lost: int = 0
    failures: Counter[Node] = field(default_factory=Counter)
    infeasible: int = 0
    offered: int = 0
    began_at: float | None = None
    taken: list[float] = field(default_factory=list)
    closed_at: float | None = None
    timer: Timer | None = None

    def offer(self, unit: Unit) -> None:
        """One more unit is out."""
        self.units[unit.slot] = unit
        self.open += 1
        self.offered += 1
        if self.offered == deadlines.quorum(self.expected):  # what ``lateness.begun`` finds: offers come in their order
            self.began_at = unit.offered_at

    def deliver(self, unit: Unit, now: float) -> None:
        """One of them is there."""
        unit.delivered = True
        self.open -= 1
        self.delivered += 1
        self.taken.append(now - unit.offered_at)

    def lose(self, unit: Unit) -> None:
        """One of them will not come."""
        del self.units[unit.slot]
        self.open -= 1
        self.lost += 1
        self.failures[unit.node] += 1

    def count_hopeless(self, too_late: float) -> None:
        """Those are infeasible that were offered after ``too_late``: the last ones, since units are kept as offered."""
        self.infeasible = 0
        for unit in reversed(self.units.values()):
            if unit.offered_at <= too_late:
                return
            self.infeasible += not unit.committed  # one that is coming in time, whenever it was offered


class Recent:
    """The rounds that a deadline is found from: those before, the one at hand and the next."""

    def __init__(self, least_slack: float, share: float, longest: float) -> None:
        self._slack, self._longest = (least_slack, share), longest
        self._states: deque[State] = deque(maxlen=DEADLINE_ROUNDS + 2)
        self._found_for = (-1, -1)
        self.found: Limits | None = None

    def add(self, state: State) -> None:
        """A further round; the oldest one goes."""
        self._states.append(state)

    def limits(self) -> "Limits | None":
        """What units took until now; None as long as none was delivered."""
        seen = self._states[-1].number, sum(len(state.taken) for state in self._states)
        if seen != self._found_for:
            taken = [seconds for state in self._states for seconds in state.taken]
            self.found = self._limits(taken) if taken else None
            self._found_for = seen
        return self.found

    def _limits(self, taken: list[float]) -> "Limits":
        deadline = min(deadlines.deadline(taken, *self._slack), self._longest)
        return Limits(deadline, deadlines.last_offer(taken, deadline), deadlines.latest_early_start(taken, deadline))


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds after a round's beginning, as of ``market.training.rounds.state.RoundState``."""

    deadline: float
    last_offer: float
    last_early_offer: float
