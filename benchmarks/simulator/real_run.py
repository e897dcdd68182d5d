"""Comparison of simulated and real rounds: the error of mean round times.

Training, fetching of inputs, payloads and aggregation are real, and so are the market's rules for closing rounds and
offering units. The embedded store is another process. Every worker is a process behind its own slow, distant
link (``shaping``). The market's API and database are absent. One device is slow, one leaves without notice, and the
slow one replaces it.

A run on equally many workers without the link measures the simulator's inputs. These are a unit's time beyond its
steps, the closing of a round, and the sizes. The compute of a transfer is assumed to be hidden behind the slow link.
"""

import statistics
from collections.abc import Mapping
from dataclasses import replace

from benchmarks.averaging import running_store
from benchmarks.report import Row, progress, row
from benchmarks.simulator.real_market import (
    LEASE_SECONDS,
    LEAVES_AFTER,
    LONGEST_SECONDS,
    SLACK_SECONDS,
    STEPS,
    SWEEP_SECONDS,
    running,
)
from benchmarks.simulator.rounds import simulate
from benchmarks.simulator.scenario import Market, Nodes, Scenario, Work
from benchmarks.simulator.shaping import ShapedLink, shaping
from market.platform.storage.client import Storage
from training_gym.exchange.round_time import MBIT, Link

LINKS = (Link(8.0, 4.0, 0.08), Link(8.0, 0.5, 0.08))
"""Without and with a round delay; with one, a payload takes half a second, so that overlap matters."""
PACE, SLOW_PACE = 0.1, 0.4
"""Seconds per inner step."""
_Store = Mapping[str, str]  # addresses by name


def compare(quick: bool) -> list[Row]:
    """Return the rows of real and simulated rounds, without and with a round delay."""
    slots, rounds, repetitions = (3, 3, 1) if quick else (4, 8, 3)
    paces = (*[PACE] * (slots - 1), SLOW_PACE, PACE)  # the last one starts as a spare
    rows: list[Row] = []
    with running_store() as store:
        progress(f"real run: {slots} equal workers without a link, to measure")
        scenario = _calibrated(store, slots, paces, rounds)
        for delay, link in enumerate(LINKS):
            rows += _compared(store, replace(scenario, round_delay=delay), paces, link, repetitions)
    return rows


def _compared(store: _Store, scenario: Scenario, paces: tuple[float, ...], link: Link, repetitions: int) -> list[Row]:
    # Each upload opens a connection, like a node whose last upload was minutes ago.
    market = replace(scenario.market, admit=link.round_trip_seconds)
    scenario = replace(scenario, nodes=replace(scenario.nodes, links={link: 1.0}), market=market)
    slots, delay = scenario.nodes.slots, scenario.round_delay
    real, simulated, informed = [], [], []
    for number in range(repetitions):
        progress(f"real run {number + 1} of {repetitions}, round_delay {delay}")
        taken, train, closing = _real(store, scenario, paces, link)
        real.append(taken)
        simulated.append(_simulated(replace(scenario, seed=number)))
        work = replace(scenario.work, encode=max(0.0, train - scenario.work.compute))
        informed.append(_simulated(replace(scenario, work=work, market=replace(scenario.market, close=closing))))
        progress(f"  mean {taken:.3f} s, simulated {simulated[-1]:.3f} s, informed {informed[-1]:.3f} s")
    note = (
        f"{slots} slots, {len(paces)} workers, {scenario.rounds} rounds; one slow, one leaves; "
        f"{link.down_mbps:g}/{link.up_mbps:g} Mb/s; round_delay {delay}"
    )
    informed_note = "the same, told what units and closing took in the run itself: what is left is links and rules"
    name = "_delay" if delay else ""
    errors, errors_informed = (
        [abs(one - other) / one for one, other in zip(real, others, strict=True)] for others in (simulated, informed)
    )
    return [
        row(f"real_run{name}_error", "share", errors, note),
        row(f"real_run{name}_error_told", "share", errors_informed, informed_note),
        row(f"real_round{name}_seconds", "s", real),
        row(f"simulated_round{name}_seconds", "s", simulated),
        row(f"simulated_round{name}_seconds_told", "s", informed),
    ]


def _simulated(scenario: Scenario) -> float:
    return statistics.fmean(round_.seconds for round_ in simulate(scenario).rounds)


def _calibrated(store: _Store, slots: int, paces: tuple[float, ...], rounds: int) -> Scenario:
    """Return the scenario of the real run, from a few rounds of equal workers without a link."""
    direct = store["gateway"], store["rpc"]
    with running(Storage(store["rpc"]), [direct] * slots, (PACE,) * slots) as run:
        run.rounds(slots, 3)
        train = statistics.median(run.trained[-slots:])
        sizes, dataset, closing = run.sizes, len(run.text), statistics.median(run.closings)
    progress(f"  a unit trains {train:.2f} s, a round closes in {closing:.2f} s; bytes: {sizes}")
    compute = STEPS * PACE
    work = Work(
        compute=compute,
        encode=train - compute,
        payload=sizes["payload"],
        update=sizes["update"],
        model=sizes["model"],
        slot_state=0.0,  # never requested
        dataset=dataset,
    )
    market = Market(
        requests_before=1,
        requests_after=0,
        close=closing,
        lease_seconds=LEASE_SECONDS,
        sweep_seconds=SWEEP_SECONDS,
        round_deadline_seconds=LONGEST_SECONDS,
        round_grace_seconds=SLACK_SECONDS,
        spares_follow=False,
    )
    nodes = Nodes(
        slots, spares=len(paces) - slots, speeds=tuple(PACE / pace for pace in paces), departures={1: LEAVES_AFTER}
    )
    return Scenario(work, nodes, market, rounds, unmeasured=0)


def _real(store: _Store, scenario: Scenario, paces: tuple[float, ...], link: Link) -> tuple[float, float, float]:
    with shaping() as loop:
        links = [ShapedLink(loop, link.up_mbps * MBIT, link.down_mbps * MBIT, link.round_trip_seconds) for _ in paces]
        urls = [(one.to(store["gateway"]), one.to(store["rpc"])) for one in links]
        with running(Storage(store["rpc"]), urls, paces, scenario.round_delay) as run:
            taken = run.rounds(scenario.nodes.slots, scenario.rounds, leaver=1)
            return statistics.fmean(taken), statistics.median(run.trained), statistics.median(run.closings)
