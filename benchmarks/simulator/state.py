"""The market's view of a job's rounds: slots, units, and durations of recent ones.

Counts are updated as units come and go. A round of ten thousand units is checked at every lost unit and arriving node,
so nothing here may iterate over all units.
"""

from collections import Counter, deque
from dataclasses import dataclass, field

from benchmarks.simulator.clock import Timer
from benchmarks.simulator.node import Node, Task
from market.training.rounds.state import DEADLINE_ROUNDS
from training_gym.exchange import deadlines


@dataclass(slots=True)
class Slot:
    """One of the job's slots. ``uploading``: the node that sends its state."""

    holder: Node | None = None
    has_state: bool = False
    uploading: Node | None = None


@dataclass(slots=True, eq=False)
class Unit:
    """One slot's unit of one round, with its node."""

    state: "State"
    slot: int
    node: Node
    offered_at: float
    task: Task | None = None
    committed: bool = False
    delivered: bool = False
    overdue: Timer | None = None

    def stop(self) -> None:
        """Stop all work on the unit."""
        if self.task is not None:
            self.task.cancel()
        if self.overdue is not None:
            self.overdue.cancel()


@dataclass(slots=True, eq=False)
class State:
    """The current or next round: units by slot without lost ones, counts, nodes' failures.

    ``infeasible`` counts open units that were offered too late and are not committed. ``offered`` counts all offers,
    also of lost units; ``began_at`` is the time of the quorum's offer. ``taken``: seconds from offer to delivery.
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
        """Record an offered unit."""
        self.units[unit.slot] = unit
        self.open += 1
        self.offered += 1
        if self.offered == deadlines.quorum(self.expected):  # equals `deadlines.round_start`: offers are in order
            self.began_at = unit.offered_at

    def deliver(self, unit: Unit, now: float) -> None:
        """Record a delivered unit."""
        unit.delivered = True
        self.open -= 1
        self.delivered += 1
        self.taken.append(now - unit.offered_at)

    def lose(self, unit: Unit) -> None:
        """Record a lost unit."""
        del self.units[unit.slot]
        self.open -= 1
        self.lost += 1
        self.failures[unit.node] += 1

    def count_infeasible(self, too_late: float) -> None:
        """Count the units offered after ``too_late``; units are in the order of their offers."""
        self.infeasible = 0
        for unit in reversed(self.units.values()):
            if unit.offered_at <= too_late:
                return
            self.infeasible += not unit.committed  # a committed one comes in time


class Recent:
    """Rounds that determine the deadline: earlier ones, the current and the next."""

    def __init__(self, min_slack: float, share: float, longest: float) -> None:
        self._slack, self._longest = (min_slack, share), longest
        self._states: deque[State] = deque(maxlen=DEADLINE_ROUNDS + 2)
        self._found_for = (-1, -1)
        self.found: Limits | None = None

    def add(self, state: State) -> None:
        """Add a round and drop the oldest."""
        self._states.append(state)

    def limits(self) -> "Limits | None":
        """Return the limits by the durations so far; None before the first delivery."""
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
    """Seconds after a round's start, as in ``market.training.rounds.state.RoundState``."""

    deadline: float
    last_offer: float
    last_early_offer: float
