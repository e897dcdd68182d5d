"""The simulator of outer rounds, against times worked out by hand."""

import math
import time
from collections import defaultdict
from dataclasses import replace

import pytest
from kit.measures import lines_run

from benchmarks.simulator.clock import Clock
from benchmarks.simulator.link import SharedLink
from benchmarks.simulator.node import MIN_RATE, Node
from benchmarks.simulator.real_market import Run, Worker, _Round, _Unit
from benchmarks.simulator.rounds import _Job, simulate
from benchmarks.simulator.scenario import Market, Nodes, Outcome, Scenario, Work
from benchmarks.simulator.state import State, Unit
from training_gym.exchange.round_time import Link

MB = 1e6
FREE = Link(down_mbps=1e12, up_mbps=1e12, round_trip_seconds=0.0)
SLOW = Link(down_mbps=80.0, up_mbps=16.0, round_trip_seconds=0.0)  # 10 MB/s and 2 MB/s
WORK = Work(compute=60.0, payload=20 * MB, model=100 * MB, slot_state=0.0)


def run(scenario: Scenario) -> Outcome:
    outcome = simulate(scenario)
    assert not outcome.failed
    return outcome


def seconds(outcome: Outcome) -> list[float]:
    return [round_.seconds for round_ in outcome.rounds]


def carried(capacity: float, *flows: tuple[float, float, float]) -> list[float]:
    """Return the end times of flows of (start, bytes, limit) over one link."""
    clock, done = Clock(), [math.nan] * len(flows)
    link = SharedLink(clock, capacity)

    def finish(number: int) -> None:
        done[number] = clock.now

    for number, (start, size, limit) in enumerate(flows):
        clock.after(start, lambda n=number, s=size, most=limit: link.begin(s, most, lambda: finish(n)))
    clock.run(lambda: False)
    return done


def test_link_is_shared_fairly_and_work_conserving() -> None:
    assert carried(math.inf, (0, 100, 10), (0, 100, 5)) == pytest.approx([10, 20])
    assert carried(10, (0, 100, 10), (0, 100, 10)) == pytest.approx([20, 20])
    assert carried(10, (0, 100, 10), (5, 100, 10)) == pytest.approx([15, 20])
    assert carried(10, (0, 20, 2), (0, 80, 10)) == pytest.approx([10, 10])  # 2 for the one, so 8 for the other
    assert carried(10, (0, 20, 2), (0, 160, 10)) == pytest.approx([10, 18])


def test_no_unit_is_lost_without_churn() -> None:
    outcome = run(Scenario(WORK, Nodes(8, links={FREE: 1.0})))
    assert outcome.efficiency == pytest.approx(1.0, abs=1e-6)
    assert [round_.included for round_ in outcome.rounds] == [8] * 9


def test_round_duration_is_sum_of_parts() -> None:
    nodes = Nodes(4, links={SLOW: 1.0})
    assert seconds(run(Scenario(WORK, nodes))) == pytest.approx([10 + 60 + 10] * 9)
    half = Nodes(4, links={Link(40.0, 8.0, 0.0): 1.0})
    assert seconds(run(Scenario(WORK, half))) == pytest.approx([20 + 60 + 20] * 9)
    far = Nodes(4, links={Link(80.0, 16.0, 0.5): 1.0})  # two requests, model; payload, two requests
    market = Market(requests_before=2, requests_after=2)
    assert seconds(run(Scenario(WORK, far, market))) == pytest.approx([80 + 6 * 0.5] * 9)
    with_state = replace(WORK, slot_state=100 * MB)  # it stays on its node
    assert seconds(run(Scenario(with_state, nodes))) == pytest.approx([80] * 9)
    updates = replace(WORK, update=10 * MB)
    assert seconds(run(Scenario(updates, nodes))) == pytest.approx([1 + 60 + 10] * 9)
    assert run(Scenario(WORK, nodes)).efficiency == pytest.approx(60 / 80)


def test_market_link_and_work_lengthen_rounds() -> None:
    nodes = Nodes(4, links={SLOW: 1.0})
    crowded = Market(up_mbps=32.0, down_mbps=160.0)  # half of what its four nodes could use
    assert seconds(run(Scenario(WORK, nodes, crowded))) == pytest.approx([20 + 60 + 20] * 9)
    busy = Market(admit=1.0, join=2.0, close=3.0)
    assert seconds(run(Scenario(WORK, nodes, busy))) == pytest.approx([80 + 1 + 4 * 2 + 3] * 9)
    tree = replace(busy, leaf=2, workers=2, merge=0.5)
    assert seconds(run(Scenario(WORK, nodes, tree))) == pytest.approx([80 + 1 + 2 * 2 + 0.5 + 3] * 9)


def test_quorum_does_not_wait_for_straggler_past_deadline() -> None:
    nodes = Nodes(6, links={FREE: 1.0}, speeds=(1, 1, 1, 1, 1, 0.1))
    market = Market(round_grace_seconds=0.0, sweep_seconds=2.0)
    outcome = run(Scenario(WORK, nodes, market))
    assert seconds(outcome) == pytest.approx([66.0] * 9)  # median 60, a tenth of slack, and on the sweep
    assert [(round_.included, round_.stragglers) for round_ in outcome.rounds] == [(5, 1)] * 9
    assert outcome.efficiency == pytest.approx(5 / 6 * 60 / 66 / (5.1 / 6))


def test_deadline_matches_market_and_its_maximum() -> None:
    nodes = Nodes(6, links={FREE: 1.0}, speeds=(1, 1, 1, 1, 1, 0.1))
    patient = Market(round_grace_seconds=100.0, sweep_seconds=0.0)
    assert seconds(run(Scenario(WORK, nodes, patient))) == pytest.approx([160.0] * 9, abs=0.01)
    hurried = replace(patient, round_deadline_seconds=80.0)
    assert seconds(run(Scenario(WORK, nodes, hurried))) == pytest.approx([80.0] * 9, abs=0.01)


def test_market_abandons_round_without_quorum() -> None:
    nodes = Nodes(3, links={FREE: 1.0}, departures={0: 10.0, 1: 10.0})
    outcome = simulate(Scenario(WORK, nodes, Market(round_deadline_seconds=100.0), unmeasured=0))
    assert (outcome.failed, outcome.efficiency) == (True, 0.0)
    assert outcome.simulated == pytest.approx(302.0)


@pytest.mark.parametrize("seed", range(6))
def test_deserted_network_continues(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    left, leave = [], _Job._leave

    def note(job: _Job, index: int) -> None:
        left.append(job._clock.now)
        leave(job, index)

    monkeypatch.setattr(_Job, "_leave", note)
    nodes = Nodes(2, links={FREE: 1.0}, leave_per_hour=20.0, departures={0: 1.0, 1: 1.0})
    patient = Market(round_deadline_seconds=10_000.0)
    simulate(Scenario(WORK, nodes, patient, rounds=20, unmeasured=0, seed=seed))
    assert left[:2] == [1.0, 1.0]
    assert left[2:]  # those who came since leave as well


def test_hot_spare_takes_over_after_lease_expiry() -> None:
    work = replace(WORK, dataset=50 * MB, update=10 * MB)
    nodes = Nodes(3, spares=1, links={SLOW: 1.0}, departures={0: 20.0})
    market = Market(lease_seconds=30.0, sweep_seconds=2.0, round_grace_seconds=1000.0, round_deadline_seconds=2000.0)
    for follows, fetching in ((False, 10 + 5), (True, 0)):
        scenario = Scenario(work, nodes, replace(market, spares_follow=follows), rounds=2, unmeasured=0)
        first, second = run(scenario).rounds
        assert first.seconds == pytest.approx(20 + 31 + fetching + 60 + 10)
        assert (first.included, first.lost) == (3, 1)
        assert second.seconds == pytest.approx(1 + 60 + 10)


def test_absent_node_catches_up_by_limited_updates() -> None:
    work = replace(WORK, model=1000 * MB, update=10 * MB)
    nodes = Nodes(1, spares=1, links={SLOW: 1.0})
    alone = run(Scenario(work, nodes, rounds=3))
    assert seconds(alone) == pytest.approx([71.0] * 2)
    forgetful = Market(files_kept=60.0)
    assert seconds(run(Scenario(work, nodes, forgetful, rounds=3))) == pytest.approx([100 + 70.0] * 2)
    large = replace(WORK, model=40 * MB, update=50 * MB)  # the model is what to fetch then
    assert seconds(run(Scenario(large, nodes, rounds=3))) == pytest.approx([74.0] * 2)


def test_concurrent_transfer_takes_its_link_share() -> None:
    work = replace(WORK, state=1000 * MB, segments=4)
    quiet, asked = Market(), Market(sampling=1.0)
    nodes = Nodes(1, links={SLOW: 1.0})
    assert seconds(run(Scenario(work, nodes, quiet, rounds=4))) == pytest.approx([80.0] * 3)
    outcome = run(Scenario(work, nodes, asked, rounds=4))
    assert seconds(outcome) == pytest.approx([90.0] * 3)
    assert outcome.unserved > 0
    pinned = run(Scenario(work, nodes, Market(pins=1), rounds=4))
    assert seconds(pinned) == pytest.approx([90.0] * 3)  # both fetch the model at the same time


def test_late_upload_is_lost() -> None:
    nodes = Nodes(3, links={SLOW: 3.0})
    outcome = simulate(Scenario(WORK, nodes, Market(upload_seconds=9.0, round_deadline_seconds=300.0), unmeasured=0))
    assert outcome.failed


def test_equal_seeds_give_equal_runs_only() -> None:
    nodes = Nodes(20, spares=4, links={SLOW: 3.0, FREE: 1.0}, speed_spread=0.2, jitter=0.05, leave_per_hour=1.0)
    scenario = Scenario(WORK, nodes, Market(round_grace_seconds=1.0), seed=7)
    assert simulate(scenario) == simulate(scenario)
    assert simulate(scenario).rounds != simulate(replace(scenario, seed=8)).rounds


@pytest.mark.long
def test_ten_thousand_nodes_take_bounded_events() -> None:
    nodes = Nodes(10_000, spares=500, leave_per_hour=0.1, jitter=0.02)
    market = Market(up_mbps=100_000.0, down_mbps=100_000.0, round_deadline_seconds=3600.0)
    outcome = run(Scenario(WORK, nodes, market, rounds=3))
    assert outcome.events < 3 * 10_500 * 30
    assert all(round_.included >= 6_667 for round_ in outcome.rounds)


def test_late_units_are_neither_offered_nor_awaited() -> None:
    work = replace(WORK, dataset=50 * MB, update=10 * MB)
    nodes = Nodes(3, spares=1, links={SLOW: 1.0}, departures={0: 85.0 + 6.0})  # in the second round
    market = Market(lease_seconds=40.0, sweep_seconds=2.0, round_grace_seconds=20.0, round_deadline_seconds=2000.0)
    # The spare could have a unit after 6 + 41 s; the others are done after 71; the deadline is 85 + 20.
    hurried = run(Scenario(work, nodes, market, rounds=3))
    assert seconds(hurried) == pytest.approx([71.0, 71.0])
    assert [(round_.included, round_.stragglers) for round_ in hurried.rounds] == [(2, 0), (3, 0)]
    patient = replace(market, round_grace_seconds=50.0)
    assert seconds(run(Scenario(work, nodes, patient, rounds=2))) == pytest.approx([47 + 70.0])
    cold = replace(patient, spares_follow=False)
    assert seconds(run(Scenario(work, nodes, cold, rounds=2))) == pytest.approx([47 + 85.0])


@pytest.mark.parametrize("seed", [0, 1, 2, 4])
def test_lagging_replica_skips_unit_to_catch_up(seed: int) -> None:
    market = Market(lease_seconds=3.0, sweep_seconds=1.0, round_grace_seconds=2.0, close=8.0)
    nodes = Nodes(16, spares=4, jitter=0.01, leave_per_hour=0.8)
    job = _Job(Scenario(replace(WORK, update=1 * MB), nodes, market, rounds=80, round_delay=1, seed=seed))
    late_in_turn, join = [[0] for _ in range(16)], job._aggregate

    def joined(included: list[Unit]) -> None:
        for slot, turns in enumerate(late_in_turn):
            unit = job._round.units.get(slot)
            turns.append(turns[-1] + 1 if unit is not None and unit not in included else 0)
        join(included)

    job._aggregate = joined  # type: ignore[method-assign]
    assert not job.run().failed
    assert max(map(max, late_in_turn)) <= 1


def _lines_per_event(nodes: int) -> float:
    work = replace(WORK, update=1 * MB)
    many = Nodes(nodes, spares=nodes // 8, jitter=0.05, leave_per_hour=10.0)
    lines, outcome = lines_run(lambda: run(Scenario(work, many, rounds=3, round_delay=1)))
    return lines / outcome.events


def test_event_cost_does_not_grow_with_nodes() -> None:
    assert _lines_per_event(800) < 1.5 * _lines_per_event(100)


def test_committed_unit_is_uploaded_before_replica_continues() -> None:
    work = replace(WORK, payload=2 * MB, model=0.0)
    slower = Link(down_mbps=80.0, up_mbps=0.4, round_trip_seconds=0.0)  # 40 s for what the others send in one
    nodes = Nodes(3, links={SLOW: 1.0}, speeds=(1, 1, 1))
    market = Market(round_grace_seconds=0.0, sweep_seconds=0.0)
    job = _Job(Scenario(work, nodes, market, rounds=3, unmeasured=0))
    late = job._nodes[0] = Node(job._clock, job._up, job._down, slower, 1.0)
    job._spares = dict.fromkeys(job._nodes)
    rounds = job.run().rounds
    # The deadline is 61 s + a tenth. The late upload ends at 100 s, too late for a unit of the second round.
    assert [(round_.included, round_.stragglers) for round_ in rounds] == [(2, 1), (2, 0), (2, 1)]
    assert rounds[0].joined_at == pytest.approx(67.1)
    assert job._slots[0].holder is late


def test_committed_unit_is_always_awaited() -> None:
    clock = Clock()
    node = Node(clock, SharedLink(clock), SharedLink(clock), FREE, 1.0)
    state = State(0, 3)
    units = [Unit(state, slot, node, offered_at) for slot, offered_at in enumerate((0.0, 30.0, 40.0))]
    for unit in units:
        state.offer(unit)
    state.count_infeasible(20.0)
    assert state.infeasible == 2
    units[1].committed = True
    state.count_infeasible(20.0)
    assert state.infeasible == 1
    units[2].committed = True
    state.deliver(units[2], 100.0)
    state.count_infeasible(20.0)
    assert (state.open, state.infeasible) == (2, 0)


def test_real_run_awaits_committed_units_like_market() -> None:
    held, began = Run.__new__(Run), time.monotonic() - 1.3
    held._slots, held._delay, held._closing = 3, 0, None
    held._arrivals = defaultdict(list, {0: [1.0, 1.0, 1.0]})  # so its deadline is 1.5 s, and the last offer 0.5 s
    worker = Worker.__new__(Worker)
    units = [_Unit(number, 1, number, worker, began + 1.0) for number in range(2)]
    held._now = _Round(1, began, dict(enumerate(units)))
    assert held._state().infeasible == 2
    units[0].result = {"payload": "fixed, and on its way"}
    assert held._state().infeasible == 1


def test_published_replica_state_yields_to_training_transfers() -> None:
    work = replace(WORK, slot_state=1000 * MB)
    outcome = run(Scenario(work, Nodes(1, links={SLOW: 1.0}), Market(pins=1), rounds=6))
    assert outcome.unserved > 0  # 500 s of it, next to 60 s of training per round
    # The payload has all of the link but the little that keeps the other connection alive.
    assert seconds(outcome)[-1] == pytest.approx(80 + 10 * MIN_RATE / (2 * MB), abs=0.01)


@pytest.mark.parametrize("up_mbps", [0.1, 0.05])  # 12.5 and 6.25 kB/s, less than keeps a published file's connection
def test_published_state_stays_within_share_on_slow_link(up_mbps: float) -> None:
    work = Work(compute=60.0, payload=25e3, model=0.0, slot_state=1 * MB)
    nodes = Nodes(1, links={Link(80.0, up_mbps, 0.0): 1.0})
    taken = seconds(run(Scenario(work, nodes, Market(pins=1), rounds=2)))
    assert taken == pytest.approx([60 + 2 * 25e3 / (up_mbps * 1e6 / 8)])
