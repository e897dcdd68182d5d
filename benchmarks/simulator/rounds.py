"""The market and its nodes at work on one job, as ``market.jobs.dispatch`` and ``zoo_compute.node`` do it.

When a round closes is decided by the market's own code: ``RoundState`` over ``lateness``. What follows it here is how
slots are filled and freed, what a node fetches and sends, and in which order. For which round a slot gets a unit, and
how many spares follow, is decided by the market's own code too.
Left out: which of several spares is taken (the market ranks them; here who waits longest), refused results, verifiers.
"""

import math
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random

from benchmarks.simulator.clock import Clock, Timer
from benchmarks.simulator.link import SharedLink
from benchmarks.simulator.node import Node, Step, Steps, Task
from benchmarks.simulator.scenario import MBIT, Link, Scenario
from market.domain.lifecycle import UnitStatus
from market.jobs import spares
from market.jobs.dispatch import DEADLINE_ROUNDS, NO_CAPACITY_AFTER, RoundState, round_to_offer
from market.jobs.spares import MAX_FAILURES
from training_gym import lateness
from zoo_compute.node.inputs import MAX_UPDATES

_HOUR = 3600.0
_LEAST_SPEED = 0.05
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Round:
    """One round: when it was opened, was found to be over and had its checkpoint, and how its units ended."""

    opened_at: float
    closed_at: float
    joined_at: float
    included: int
    lost: int
    stragglers: int

    @property
    def seconds(self) -> float:
        """From its opening to the next one's."""
        return self.joined_at - self.opened_at


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run.

    Attributes:
        rounds: those that are measured, see :class:`~benchmarks.simulator.scenario.Scenario`.
        efficiency: useful compute (of units that entered a checkpoint) as a share of what the slots' devices do in the
            same time without ever waiting.
        failed: whether the market gave the job up (``no_capacity``).
        unserved: tasks beside the training (reveals, pins) that nodes had not done at the end.
        events: what happened, in the simulator's terms; ``simulated``: seconds of virtual time.
    """

    rounds: list[Round]
    efficiency: float
    failed: bool
    unserved: int
    events: int
    simulated: float


@dataclass(slots=True)
class _Slot:
    holder: Node | None = None
    has_state: bool = False
    uploading: Node | None = None  # its state


@dataclass(slots=True)
class _Unit:
    state: "_State"
    slot: int
    node: Node
    offered_at: float
    task: Task | None = None
    committed: bool = False
    delivered: bool = False
    overdue: Timer | None = None


@dataclass(slots=True)
class _State:
    """Of the round at hand or the next: units by slot (lost ones are gone), counts, and what its nodes failed.

    ``hopeless``: of the open units, those that are not awaited. ``offers``: when its
    units were offered. ``taken``: seconds from offer to delivery.
    """

    number: int
    opened_at: float = 0.0
    units: dict[int, _Unit] = field(default_factory=dict)
    open: int = 0
    delivered: int = 0
    lost: int = 0
    failures: Counter[Node] = field(default_factory=Counter)
    hopeless: int = 0
    offers: list[float] = field(default_factory=list)
    taken: list[float] = field(default_factory=list)
    closed_at: float | None = None
    timer: Timer | None = None


def _status(unit: _Unit | None) -> UnitStatus | None:
    if unit is None:
        return None
    # With a round delay a unit's node goes on at the commitment; without one that makes no difference.
    return UnitStatus.UPLOADED if unit.committed else UnitStatus.LEASED


def simulate(scenario: Scenario) -> Outcome:
    """Run the scenario to its last round, or to where the market gives up. The same scenario gives the same outcome."""
    return _Job(scenario).run()


class _Job:
    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._random = Random(scenario.seed)
        self._clock = Clock()
        market, nodes = scenario.market, scenario.nodes
        self._up = SharedLink(self._clock, market.up_mbps * MBIT)
        self._down = SharedLink(self._clock, market.down_mbps * MBIT)
        self._nodes = [self._node(number) for number in range(nodes.slots + nodes.spares)]
        self._speed = sum(node.speed for node in self._nodes) / len(self._nodes)
        self._spares = deque(self._nodes)
        self._slots = [_Slot() for _ in range(nodes.slots)]
        self._rounds: list[Round] = []
        self._failed = False
        self._round, self._next = _State(-1), _State(0)
        # What a deadline is found from: the rounds before, the one at hand and the next.
        self._recent = deque([self._next], maxlen=DEADLINE_ROUNDS + 2)

    def run(self) -> Outcome:
        nodes = self._scenario.nodes
        if nodes.leave_per_hour:
            self._await_departure()
            self._await_arrival(nodes.leave_per_hour * len(self._nodes) / _HOUR)
        for slot, seconds in nodes.departures.items():
            self._clock.after(seconds, lambda slot=slot: self._depart(slot))  # type: ignore[misc]
        self._open_round()
        self._clock.run(lambda: self._failed or len(self._rounds) >= self._scenario.rounds)
        return self._outcome()

    def _outcome(self) -> Outcome:
        measured = self._rounds[self._scenario.unmeasured :]
        useful = sum(found.included for found in measured) * self._scenario.work.compute
        ideal = sum(found.seconds for found in measured) * len(self._slots) * self._speed
        return Outcome(
            rounds=measured,
            efficiency=useful / ideal if ideal and not self._failed else 0.0,
            failed=self._failed,
            unserved=sum(node.unserved for node in self._nodes),
            events=self._clock.events,
            simulated=self._clock.now,
        )

    # --- nodes come and go

    def _node(self, number: int) -> Node:
        nodes = self._scenario.nodes
        link: Link = self._random.choices(list(nodes.links), list(nodes.links.values()))[0]
        if number < len(nodes.speeds):
            speed = nodes.speeds[number]
        elif self._random.random() < nodes.straggler_share:
            speed = nodes.straggler_speed
        else:
            speed = max(_LEAST_SPEED, self._random.gauss(1.0, nodes.speed_spread))
        return Node(self._clock, self._up, self._down, link, speed)

    def _await_departure(self) -> None:
        rate = self._scenario.nodes.leave_per_hour * len(self._nodes) / _HOUR
        if rate:
            self._clock.after(self._random.expovariate(rate), self._somebody_leaves)

    def _somebody_leaves(self) -> None:
        self._leave(self._random.randrange(len(self._nodes)))
        self._await_departure()

    def _depart(self, slot: int) -> None:
        holder = self._slots[slot].holder
        if holder is not None and holder.alive:
            self._leave(self._nodes.index(holder))

    def _leave(self, index: int) -> None:
        """A node is gone without a word. Of its work the market learns when the lease has expired."""
        node = self._nodes[index]
        self._nodes[index] = self._nodes[-1]
        self._nodes.pop()
        node.leave()
        if node in self._spares:
            self._spares.remove(node)
        for unit in (*self._round.units.values(), *self._next.units.values()):
            if unit.node is node and not unit.delivered:
                self._stop(unit)
                self._expect_expiry(unit)

    def _await_arrival(self, rate: float) -> None:
        self._clock.after(self._random.expovariate(rate), lambda: self._arrive(rate))

    def _arrive(self, rate: float) -> None:
        node = self._node(1 << 62)
        self._nodes.append(node)
        self._spares.append(node)
        self._fill()
        self._await_arrival(rate)

    # --- rounds

    def _open_round(self) -> None:
        self._round, self._next = self._next, _State(self._next.number + 1)
        self._round.opened_at = self._clock.now
        self._recent.append(self._next)
        self._go_on()
        market, state = self._scenario.market, self._round
        patience = NO_CAPACITY_AFTER * market.round_deadline_seconds
        self._clock.after(patience + market.sweep_seconds, lambda: self._consider() if state is self._round else None)
        self._consider()

    def _go_on(self) -> None:
        """Fill vacant slots and offer all units that are due, as ``market.jobs.dispatch`` does."""
        self._fill()
        found = self._round_state(always=True)
        for number, slot in enumerate(self._slots):
            if slot.holder is not None:
                self._offer_next(number, slot.holder, replace(found, open=self._round.open))

    def _fill(self) -> None:
        """Give vacant slots to spares, those first that failed least in these rounds, then those that follow."""
        state, ahead = self._round, self._next
        vacant = [number for number, slot in enumerate(self._slots) if slot.holder is None]
        if vacant:
            found = self._round_state(always=True)
            resting = state.units.keys() | ahead.units.keys()
            places = iter([slot for slot in vacant if slot not in resting or self._which(slot, found) is not None])
            for failed in range(MAX_FAILURES):
                equals = [node for node in self._spares if state.failures[node] + ahead.failures[node] == failed]
                equals.sort(key=lambda node: not node.follows)
                for node, number in zip(equals, places, strict=False):
                    self._spares.remove(node)
                    self._slots[number].holder = node
                    self._offer_next(number, node, replace(found, open=state.open))
        self._have_spares_follow()

    def _which(self, number: int, found: RoundState) -> int | None:
        own, ahead = (_status(state.units.get(number)) for state in (self._round, self._next))
        may_go_ahead = bool(self._scenario.round_delay) and self._next.number < self._scenario.rounds
        now = _EPOCH + timedelta(seconds=self._clock.now)
        return round_to_offer(found, now, own, ahead, may_go_ahead=may_go_ahead)

    def _offer_next(self, number: int, node: Node, found: RoundState) -> None:
        which = self._which(number, found)
        if which is not None:
            self._offer((self._round, self._next)[which], number, node)

    def _have_spares_follow(self) -> None:
        """As ``market.jobs.spares`` asks them to: each is asked once for a checkpoint, those that follow come first."""
        state, market = self._round, self._scenario.market
        if not market.spares_follow:
            return
        missing = spares.wanted(len(self._slots)) - sum(node.asked_for == state.number for node in self._spares)
        free = sorted((node for node in self._spares if node.asked_for < state.number), key=lambda one: not one.follows)
        for node in free[: max(missing, 0)]:
            node.asked_for = state.number
            if node.alive:
                node.serve(self._follow(node, state.number))

    def _follow(self, node: Node, round_: int) -> Steps:
        yield Step.WAIT, self._scenario.market.requests_before * node.link.round_trip_seconds
        yield from self._inputs(node, round_)
        node.follows = True

    def _offer(self, state: _State, number: int, node: Node) -> None:
        state.units[number] = unit = _Unit(state, number, node, self._clock.now)
        state.open += 1
        state.offers.append(self._clock.now)
        if node.alive:
            unit.task = node.start(self._training(unit, self._round.number), lambda: self._commit(unit))
        else:
            self._expect_expiry(unit)

    def _expect_expiry(self, unit: _Unit) -> None:
        market = self._scenario.market
        silence = market.lease_seconds + market.sweep_seconds / 2  # on the mean the sweep is half its interval away
        self._clock.after(silence, lambda: self._lose(unit))

    def _lose(self, unit: _Unit) -> None:
        """A unit will not be delivered: its slot goes to somebody else."""
        state = unit.state
        if state.units.get(unit.slot) is not unit or unit.delivered or state.number < self._round.number:
            return
        self._stop(unit)
        del state.units[unit.slot]
        state.open -= 1
        state.lost += 1
        state.failures[unit.node] += 1
        if self._slots[unit.slot].holder is unit.node:
            self._slots[unit.slot].holder = None
            if unit.node.alive:
                self._spares.append(unit.node)
        if self._counts.lacks_quorum:
            self._go_on()
        else:
            self._fill()
        self._consider()

    def _stop(self, unit: _Unit) -> None:
        if unit.task is not None:
            unit.task.cancel()
        if unit.overdue is not None:
            unit.overdue.cancel()

    def _commit(self, unit: _Unit) -> None:
        """The result is fixed, and goes up now; beside the next unit if the job has a round delay."""
        unit.committed = True
        unit.overdue = self._clock.after(self._scenario.market.upload_seconds, lambda: self._lose(unit))
        unit.task = unit.node.start(self._delivery(unit), lambda: self._deliver(unit))
        if self._scenario.round_delay:
            self._offer_next(unit.slot, unit.node, self._counts)

    def _deliver(self, unit: _Unit) -> None:
        state, unit.delivered = unit.state, True
        if unit.overdue is not None:
            unit.overdue.cancel()
        state.open -= 1
        state.delivered += 1
        state.taken.append(self._clock.now - unit.offered_at)
        drawn = self._drawn_segments()
        for _ in range(sum(segment > 0 for segment in drawn)):
            unit.node.serve(iter([(Step.UP, self._scenario.work.state)]))
        if drawn and self._slots[unit.slot].has_state:
            unit.node.serve(iter([(Step.UP, self._scenario.work.slot_state)]))
        if state is self._round and (state.open <= state.hopeless or state.timer is None):
            self._consider()

    def _drawn_segments(self) -> list[int]:
        """Which of a unit's segments are drawn; the first starts from the checkpoint, which everybody has."""
        segments = self._scenario.work.segments
        wanted = segments * self._scenario.market.sampling
        count = int(wanted) + (self._random.random() < wanted % 1)
        return [self._random.randrange(segments) for _ in range(count)]

    def _consider(self) -> None:
        """Close the round if the market would; otherwise look again when its deadline has passed.

        The market looks at every delivery and every sweep. Between the quorum and the deadline found then nothing but
        the last delivery can close the round, unless faster deliveries draw the deadline nearer: that is not seen.
        """
        state, market = self._round, self._scenario.market
        if state.closed_at is not None:
            return
        if state.timer is not None:
            state.timer.cancel()
            state.timer = None
        found, now = self._round_state(always=False), _EPOCH + timedelta(seconds=self._clock.now)
        if found.can_close(now):
            state.closed_at = self._clock.now
            included = [unit for unit in state.units.values() if unit.delivered]
            self._clock.after(market.joining_seconds(len(included)), lambda: self._join(included))
        elif found.is_hopeless(now):
            self._failed = True
        elif found.delivered >= found.quorum:
            ends = (found.started_at + found.deadline - now).total_seconds()
            swept = -(-ends // market.sweep_seconds) * market.sweep_seconds if market.sweep_seconds else ends
            state.timer = self._clock.after(max(swept, 1e-3), self._consider)

    @property
    def _counts(self) -> RoundState:
        """The round's state without its times, for a slot whose own unit is there: these do not count for it."""
        state, nothing = self._round, timedelta(0)
        return RoundState(len(self._slots), state.open, state.delivered, _EPOCH, nothing, nothing)

    def _round_state(self, *, always: bool) -> RoundState:
        """As ``market.jobs.dispatch.round_state`` makes it of the job's rows; without a quorum no deadline is needed
        to see that a round cannot close, so it is found then only if it is ``always`` wanted."""
        state, market = self._round, self._scenario.market
        longest, quorum = market.round_deadline_seconds, lateness.quorum(len(self._slots))
        found = always or state.delivered >= quorum
        taken = [seconds for recent in self._recent for seconds in recent.taken] if found else []
        share = lateness.OVERLAPPED_SLACK if self._scenario.round_delay else lateness.LEAST_SLACK
        deadline = min(lateness.deadline(taken, market.round_slack_seconds, share) if taken else longest, longest)
        last_offer = lateness.last_offer(taken, deadline) if taken else math.inf
        if state.closed_at is not None:
            last_offer = -1.0
        began = lateness.begun(state.offers, len(self._slots)) if self._scenario.round_delay else None
        began = state.opened_at if began is None else began
        if taken:
            too_late = began + last_offer
            state.hopeless = sum(not unit.delivered and unit.offered_at > too_late for unit in state.units.values())
        return RoundState(
            nodes=len(self._slots),
            open=state.open,
            delivered=state.delivered,
            started_at=_EPOCH + timedelta(seconds=began),
            deadline=timedelta(seconds=deadline),
            patience=timedelta(seconds=NO_CAPACITY_AFTER * longest),
            hopeless=state.hopeless,
            last_offer=None if last_offer == math.inf else timedelta(seconds=last_offer),
        )

    def _join(self, included: list[_Unit]) -> None:
        """The next checkpoint is there: who is still at work is told to stop and leaves its slot."""
        state = self._round
        for unit in included:
            self._slots[unit.slot].has_state = True
        stragglers = [unit for unit in state.units.values() if not unit.delivered]
        for unit in stragglers:
            self._stop(unit)
            self._slots[unit.slot].holder = None
            if unit.node.alive:
                self._spares.append(unit.node)
        assert state.closed_at is not None
        self._rounds.append(
            Round(state.opened_at, state.closed_at, self._clock.now, len(included), state.lost, len(stragglers))
        )
        self._pin()
        self._open_round()

    def _pin(self) -> None:
        """The job's own nodes fetch the checkpoint, and each uploads its slot's state, beside their training.

        Here such an upload has an equal share of the link; a real node lets a unit's own transfers go first.
        """
        market, work = self._scenario.market, self._scenario.work
        if not market.pins or len(self._rounds) % market.pin_interval:
            return
        size = work.model + work.outer_state + work.update
        holders = [slot.holder for slot in self._slots if slot.holder is not None and slot.holder.alive]
        for node in holders[: market.pins]:
            node.serve(iter([(Step.DOWN, size)]))
        for slot in self._slots:
            if slot.holder is not None and slot.holder.alive and slot.has_state and slot.uploading is not slot.holder:
                slot.uploading = slot.holder
                slot.holder.serve(self._upload_state(slot))

    def _upload_state(self, slot: _Slot) -> Steps:
        yield Step.UP, self._scenario.work.slot_state
        slot.uploading = None

    # --- a node's work

    def _training(self, unit: _Unit, checkpoint: int) -> Steps:
        """One unit, in the order of ``zoo_compute.node.work``: inputs, training, commitment.

        ``checkpoint`` is the round whose model it starts from. Its slot's own payload is on the node, or is small.
        """
        work, market, node = self._scenario.work, self._scenario.market, unit.node
        yield Step.WAIT, market.requests_before * node.link.round_trip_seconds
        yield from self._inputs(node, checkpoint)
        jitter = max(_LEAST_SPEED, self._random.gauss(1.0, self._scenario.nodes.jitter))
        yield Step.WAIT, (work.compute * jitter + work.encode) / node.speed
        yield Step.WAIT, bool(market.requests_after) * node.link.round_trip_seconds

    def _delivery(self, unit: _Unit) -> Steps:
        """Its upload and completion."""
        work, market, trip = self._scenario.work, self._scenario.market, unit.node.link.round_trip_seconds
        yield Step.WAIT, trip
        yield Step.UP, work.payload
        yield Step.WAIT, max(0, market.requests_after - 1) * trip + market.admit

    def _inputs(self, node: Node, round_: int) -> Steps:
        """Fetch what the node lacks of a round's model and of the data."""
        work, trip = self._scenario.work, node.link.round_trip_seconds
        requests, size = self._model_fetch(node, round_)
        yield Step.WAIT, requests * trip
        yield Step.DOWN, size
        node.model_round, node.model_used_at = max(round_, node.model_round or 0), self._clock.now
        if not self._keeps(node.dataset_used_at) and work.dataset:
            yield Step.WAIT, trip
            yield Step.DOWN, work.dataset
        node.dataset_used_at = self._clock.now

    def _model_fetch(self, node: Node, round_: int) -> tuple[int, float]:
        """Requests and bytes until a node has a round's model: nothing, the updates it lacks, or all of it."""
        if node.model_round is None or not self._keeps(node.model_used_at):
            return 1, self._scenario.work.model
        missing = round_ - node.model_round
        if missing <= 0:
            return 0, 0.0
        if self._scenario.work.update and missing <= MAX_UPDATES:
            return 2 * missing - 1, missing * self._scenario.work.update  # with the manifests that name earlier ones
        return 1, self._scenario.work.model

    def _keeps(self, used_at: float | None) -> bool:
        return used_at is not None and self._clock.now - used_at <= self._scenario.market.files_kept
