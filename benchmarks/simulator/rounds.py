"""Simulation of the market and its nodes on one job.

The market's own code decides when a round closes (``RoundState`` over ``deadlines``), for which round a slot gets a
unit, and how many spares prefetch. This module fills and frees slots, and orders each node's transfers. Not simulated:
the ranking of spares (the longest waiting one is taken), refused results, verifiers.
"""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

from benchmarks.simulator.clock import Clock
from benchmarks.simulator.link import SharedLink
from benchmarks.simulator.node import Node, Step
from benchmarks.simulator.scenario import Outcome, Round, Scenario
from benchmarks.simulator.state import Recent, Slot, State, Unit
from benchmarks.simulator.work import MIN_SPEED, NodeWork
from market.domain.lifecycle import UnitStatus
from market.settings import NO_CAPACITY_AFTER
from market.training.matching import spares
from market.training.matching.spares import MAX_FAILURES
from market.training.rounds.service import round_to_offer
from market.training.rounds.state import RoundState
from training_gym.exchange import deadlines
from training_gym.exchange.round_time import MBIT, Link

_HOUR = 3600.0
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def _status(unit: Unit | None) -> UnitStatus | None:
    if unit is None:
        return None
    # With a round delay a unit's node continues at the commitment; without one that makes no difference.
    return UnitStatus.UPLOADED if unit.committed else UnitStatus.LEASED


def simulate(scenario: Scenario) -> Outcome:
    """Run the scenario to its last round, or until the market gives up; deterministic."""
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
        self._work = NodeWork(scenario, self._clock, self._random)
        self._spares = dict.fromkeys(self._nodes)  # in the order of becoming free
        self._at_work: dict[Node, list[Unit]] = {}  # units that are neither delivered nor lost
        self._slots = [Slot() for _ in range(nodes.slots)]
        self._vacant = set(range(nodes.slots))
        self._late: dict[int, Unit] = {}  # by slot: committed in time, uploaded after the round
        self._rounds: list[Round] = []
        self._failed = False
        self._round, self._next = State(-1, nodes.slots), State(0, nodes.slots)
        share = deadlines.OVERLAPPED_SLACK if scenario.round_delay else deadlines.MIN_SLACK_SHARE
        self._recent = Recent(market.round_grace_seconds, share, market.round_deadline_seconds)
        self._recent.add(self._next)

    def run(self) -> Outcome:
        nodes = self._scenario.nodes
        if nodes.leave_per_hour:
            self._await_departure()
            self._await_arrival(nodes.leave_per_hour * len(self._nodes) / _HOUR)  # equals the initial departures
        for slot, seconds in nodes.departures.items():
            self._clock.after(seconds, lambda slot=slot: self._depart(slot))  # type: ignore[misc]
        self._open_round()
        self._clock.run(lambda: self._failed or len(self._rounds) >= self._scenario.rounds)
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

    def _node(self, number: int) -> Node:
        nodes = self._scenario.nodes
        link: Link = self._random.choices(list(nodes.links), list(nodes.links.values()))[0]
        if number < len(nodes.speeds):
            speed = nodes.speeds[number]
        elif self._random.random() < nodes.straggler_share:
            speed = nodes.straggler_speed
        else:
            speed = max(MIN_SPEED, self._random.gauss(1.0, nodes.speed_spread))
        return Node(self._clock, self._up, self._down, link, speed)

    def _await_departure(self) -> None:
        rate = self._scenario.nodes.leave_per_hour * max(1, len(self._nodes)) / _HOUR  # not zero: others may arrive
        self._clock.after(self._random.expovariate(rate), self._leave_at_random)

    def _leave_at_random(self) -> None:
        if self._nodes:
            self._leave(self._random.randrange(len(self._nodes)))
        self._await_departure()

    def _depart(self, slot: int) -> None:
        holder = self._slots[slot].holder
        if holder is not None and holder.alive:
            self._leave(self._nodes.index(holder))

    def _leave(self, index: int) -> None:
        """Remove a node without notice. The market learns of its work when the lease has expired."""
        node = self._nodes[index]
        self._nodes[index] = self._nodes[-1]
        self._nodes.pop()
        node.leave()
        self._spares.pop(node, None)
        for unit in sorted(self._at_work.get(node, ()), key=lambda unit: unit.state.number):
            unit.stop()
            self._expect_expiry(unit)

    def _await_arrival(self, rate: float) -> None:
        self._clock.after(self._random.expovariate(rate), lambda: self._arrive(rate))

    def _arrive(self, rate: float) -> None:
        node = self._node(1 << 62)
        self._nodes.append(node)
        self._spares[node] = None
        self._fill()
        self._await_arrival(rate)

    def _open_round(self) -> None:
        self._round, self._next = self._next, State(self._next.number + 1, len(self._slots))
        self._round.opened_at = self._clock.now
        self._recent.add(self._next)
        self._dispatch()
        market, state = self._scenario.market, self._round
        patience = NO_CAPACITY_AFTER * market.round_deadline_seconds
        self._clock.after(
            patience + market.sweep_seconds, lambda: self._close_if_due() if state is self._round else None
        )
        self._close_if_due()

    def _dispatch(self) -> None:
        """Fill vacant slots and offer all due units, as ``market.training.rounds.service`` does."""
        self._fill()
        found = self._round_state(always=True)
        for number, slot in enumerate(self._slots):
            if slot.holder is not None:
                if found.open != self._round.open:
                    found = replace(found, open=self._round.open)
                self._offer_next(number, slot.holder, found)

    def _fill(self) -> None:
        """Assign vacant slots to spares: fewest recent failures first, then those that prefetched."""
        state, ahead = self._round, self._next
        if self._vacant:
            found = self._round_state(always=True)
            places = [slot for slot in sorted(self._vacant) if self._is_due(slot, found)]
            failed = {node: state.failures.get(node, 0) + ahead.failures.get(node, 0) for node in self._spares}
            suitable = [node for node in self._spares if failed[node] < MAX_FAILURES]
            suitable.sort(key=lambda node: (failed[node], not node.follows))
            for node, number in zip(suitable, places, strict=False):
                del self._spares[node]
                self._vacant.remove(number)
                self._slots[number].holder = node
                self._offer_next(number, node, replace(found, open=state.open))
        self._offer_prefetches()

    def _is_due(self, number: int, found: RoundState) -> bool:
        rests = number in self._round.units or number in self._next.units
        return not rests or self._round_to_offer(number, found) is not None

    def _round_to_offer(self, number: int, found: RoundState) -> int | None:
        if number in self._late:
            return None
        own, ahead = (_status(state.units.get(number)) for state in (self._round, self._next))
        now, began = _EPOCH + timedelta(seconds=self._clock.now), self._next.began_at
        ahead_began = None if began is None else _EPOCH + timedelta(seconds=began)
        next_round_open = (
            bool(self._scenario.round_delay)
            and self._next.number < self._scenario.rounds
            and found.can_start_next_round(now, ahead_began)
        )
        return round_to_offer(found, now, own, ahead, next_round_open=next_round_open)

    def _offer_next(self, number: int, node: Node, found: RoundState) -> None:
        if (which := self._round_to_offer(number, found)) is not None:
            self._offer((self._round, self._next)[which], number, node)

    def _offer_prefetches(self) -> None:
        """Offer prefetches like ``matching.spares``: once per checkpoint, repeaters first."""
        state, market = self._round, self._scenario.market
        if not market.spares_follow:
            return
        missing = spares.spare_count(len(self._slots)) - sum(node.asked_for == state.number for node in self._spares)
        if missing <= 0:
            return
        free = sorted((node for node in self._spares if node.asked_for < state.number), key=lambda one: not one.follows)
        for node in free[:missing]:
            node.asked_for = state.number
            if node.alive:
                node.serve(self._work.following(node, state.number))

    def _offer(self, state: State, number: int, node: Node) -> None:
        unit = Unit(state, number, node, self._clock.now)
        state.offer(unit)
        self._at_work.setdefault(node, []).append(unit)
        if node.alive:
            unit.task = node.start(self._work.training(node, self._round.number), lambda: self._commit(unit))
        else:
            self._expect_expiry(unit)

    def _expect_expiry(self, unit: Unit) -> None:
        market = self._scenario.market
        wait = market.lease_seconds + market.sweep_seconds / 2  # the mean wait for a sweep is half its interval
        self._clock.after(wait, lambda: self._lose(unit))

    def _lose(self, unit: Unit) -> None:
        if unit not in self._at_work.get(unit.node, ()):
            return
        lacked_quorum = self._round_counts.lacks_quorum
        unit.state.lose(unit)
        self._end_work(unit)
        self._vacate(unit)
        if self._round_counts.lacks_quorum and not lacked_quorum:
            self._dispatch()  # once; afterwards each slot is checked when its own units change
        else:
            self._fill()
        self._close_if_due()

    def _vacate(self, unit: Unit) -> None:
        if self._slots[unit.slot].holder is not unit.node:
            return
        self._slots[unit.slot].holder = None
        self._vacant.add(unit.slot)
        if unit.node.alive:
            self._spares[unit.node] = None

    def _end_work(self, unit: Unit) -> None:
        unit.stop()
        if self._late.get(unit.slot) is unit:
            del self._late[unit.slot]
        units = self._at_work[unit.node]
        units.remove(unit)
        if not units:
            del self._at_work[unit.node]

    def _commit(self, unit: Unit) -> None:
        """Fix the result and upload it, in parallel to the next unit if the job has a round delay."""
        unit.committed = True
        unit.overdue = self._clock.after(self._scenario.market.upload_seconds, lambda: self._lose(unit))
        unit.task = unit.node.start(self._work.delivery(unit.node), lambda: self._deliver(unit))
        if self._scenario.round_delay:
            self._offer_next(unit.slot, unit.node, self._round_counts)

    def _deliver(self, unit: Unit) -> None:
        state, holder = unit.state, self._slots[unit.slot].holder
        state.deliver(unit, self._clock.now)
        self._end_work(unit)
        for reveal in self._work.reveals(with_slot_state=self._slots[unit.slot].has_state):
            unit.node.serve(reveal)
        if state.number < self._round.number and holder is not None:
            self._offer_next(unit.slot, holder, self._round_state(always=True))
        if state is self._round and (state.open <= state.infeasible or state.timer is None):
            self._close_if_due()

    def _close_if_due(self) -> None:
        """Close the round if the market would; otherwise check again after its deadline."""
        # The market checks at every delivery and every sweep. Between the quorum and the deadline only the last
        # delivery can close the round. The simulation ignores that faster deliveries may move the deadline forward.
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
            self._clock.after(market.joining_seconds(len(included)), lambda: self._aggregate(included))
        elif found.is_infeasible(now):
            self._failed = True
        elif found.delivered >= found.quorum:
            ends = (found.started_at + found.deadline - now).total_seconds()
            swept = -(-ends // market.sweep_seconds) * market.sweep_seconds if market.sweep_seconds else ends
            state.timer = self._clock.after(max(swept, 1e-3), self._close_if_due)

    @property
    def _round_counts(self) -> RoundState:
        """The round's state without its times, for a slot that has its own unit."""
        # Only the latest offer of a next round's unit matters then, by the limits found last.
        state, nothing, limits = self._round, timedelta(0), self._recent.found
        last_early_offer = None if limits is None else timedelta(seconds=limits.last_early_offer)
        return RoundState(
            len(self._slots), state.open, state.delivered, _EPOCH, nothing, nothing, last_early_offer=last_early_offer
        )

    def _round_state(self, *, always: bool) -> RoundState:
        """Return the state that ``rounds.state.round_state`` would derive from the job's rows."""
        # Without a quorum a round cannot close, so the deadline is computed only if ``always``.
        state, market = self._round, self._scenario.market
        longest, quorum = market.round_deadline_seconds, deadlines.quorum(len(self._slots))
        limits = self._recent.limits() if always or state.delivered >= quorum else None
        deadline, last_offer, last_early_offer = longest, math.inf, None
        began = state.began_at if self._scenario.round_delay and state.began_at is not None else state.opened_at
        if limits is not None:
            deadline, last_early_offer = limits.deadline, timedelta(seconds=limits.last_early_offer)
            last_offer = -1.0 if state.closed_at is not None else limits.last_offer
            state.count_infeasible(began + last_offer)
        return RoundState(
            nodes=len(self._slots),
            open=state.open,
            delivered=state.delivered,
            started_at=_EPOCH + timedelta(seconds=began),
            deadline=timedelta(seconds=deadline),
            patience=timedelta(seconds=NO_CAPACITY_AFTER * longest),
            infeasible=state.infeasible,
            last_offer=None if last_offer == math.inf else timedelta(seconds=last_offer),
            last_early_offer=last_early_offer,
        )

    def _aggregate(self, included: list[Unit]) -> None:
        """Publish the next checkpoint. Nodes without a commitment stop and leave their slots."""
        # Committed units still upload before their slots continue. They count for nothing here, although the market
        # aggregates them with the next round at lower weight.
        state = self._round
        for unit in included:
            self._slots[unit.slot].has_state = True
        stragglers = [unit for unit in state.units.values() if not unit.delivered]
        for unit in stragglers:
            if unit.committed:
                self._late[unit.slot] = unit
            else:
                self._end_work(unit)
                self._vacate(unit)
        assert state.closed_at is not None
        self._rounds.append(
            Round(state.opened_at, state.closed_at, self._clock.now, len(included), state.lost, len(stragglers))
        )
        self._pin()
        self._open_round()

    def _pin(self) -> None:
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
                slot.holder.serve(self._work.pinning(slot))
