"""Simulated rounds against rounds of real processes over shaped links.

The simulator takes each round's time for training and aggregation from the measurement.
"""

import pytest

from benchmarks.averaging import running_store
from benchmarks.simulator.real_market import LONGEST_SECONDS, SWEEP_SECONDS, Run, running
from benchmarks.simulator.rounds import simulate
from benchmarks.simulator.scenario import Market, Nodes, Scenario, Work
from benchmarks.simulator.shaping import ShapedLink, shaping
from market.platform.storage.client import Storage
from training_gym.exchange.round_time import MBIT, Link

SLOTS, ROUNDS = 2, 3
LINK = Link(down_mbps=2.0, up_mbps=0.03, round_trip_seconds=0.08)
"""A payload of 33 kB takes nine seconds up, data and model of 0.8 MB three seconds down."""
LEFT_OUT = 0.3
"""Requests' heads and what nodes do beside training and transfers are not simulated: this share of a round at most."""


def _trained(run: Run, number: int) -> float:
    return max(run.trained[SLOTS * number : SLOTS * (number + 1)])


def _simulated(run: Run, number: int, link: Link) -> float:
    work = Work(
        compute=_trained(run, number),
        payload=run.sizes["payload"],
        update=run.sizes["update"],
        model=run.sizes["model"],
        slot_state=0.0,
        dataset=len(run.text),
    )
    market = Market(
        requests_before=1,
        requests_after=0,
        admit=link.round_trip_seconds,
        close=run.closings[number],
        sweep_seconds=SWEEP_SECONDS,
        round_deadline_seconds=LONGEST_SECONDS,
    )
    outcome = simulate(Scenario(work, Nodes(SLOTS, links={link: 1.0}), market, ROUNDS, unmeasured=0))
    return outcome.rounds[number].seconds


@pytest.mark.timeout(1_200)
def test_slow_link_rounds_match_simulated_duration() -> None:
    with running_store() as store, shaping() as loop:
        rates = LINK.up_mbps * MBIT, LINK.down_mbps * MBIT
        links = [ShapedLink(loop, *rates, LINK.round_trip_seconds) for _ in range(SLOTS)]
        urls = [(link.to(store["gateway"]), link.to(store["rpc"])) for link in links]
        with running(Storage(store["rpc"]), urls, (0.0,) * SLOTS) as run:
            real = run.rounds(SLOTS, ROUNDS)
    simulated = [_simulated(run, number, LINK) for number in range(ROUNDS)]
    faster = Link(LINK.down_mbps, 2 * LINK.up_mbps, LINK.round_trip_seconds)
    for number, (took, expected) in enumerate(zip(real, simulated, strict=True)):
        assert 0.98 * expected < took < (1 + LEFT_OUT) * expected, (real, simulated)
        assert _simulated(run, number, faster) * (1 + LEFT_OUT) < took, "it is the link that decides"
    moved = [took - _trained(run, number) for number, took in enumerate(real)]
    assert moved[0] > moved[-1]  # data and model, and then updates; a busy machine trains more slowly
