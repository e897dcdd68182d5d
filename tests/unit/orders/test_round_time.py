"""The estimate of a round's time: by hand, and against the simulated market."""

from dataclasses import replace

import pytest

from benchmarks.simulator.rounds import simulate
from benchmarks.simulator.scenario import Market, Nodes, Scenario, Work
from training_gym.compress.link_adaptation import top_k_levels
from training_gym.exchange.round_time import CHECK, CLOSE, ENCODE, JOIN, MBIT, Link, round_time
from training_gym.spec.architectures import read_model
from training_gym.spec.config import TrainingConfig, TrainingSpec
from training_gym.spec.methods import METHODS

MODEL = read_model({"hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 8})
SIZE = MODEL.num_parameters()
SLOW = Link(100.0, 20.0, 0.08)


def spec(method: str, **settings: object) -> TrainingSpec:
    return TrainingSpec(MODEL, "unused", TrainingConfig(**METHODS[method] | settings))


def test_round_is_sum_of_its_parts() -> None:
    found = round_time(spec("diloco"), 8, 200.0, Link(80.0, 16.0, 0.5))  # 10 and 2 MB/s; all entries at eight bits
    assert found.down_bytes == 4 * SIZE
    assert found.up_bytes == pytest.approx(SIZE, rel=1e-3)
    closing = 8 * 8 * found.up_bytes * JOIN + SIZE * CLOSE
    assert found.closing == pytest.approx(closing)
    waits = 4 * SIZE / 10e6 + found.up_bytes / 2e6 + 7 * 0.5 + SIZE * (ENCODE + CHECK)
    assert found.seconds == pytest.approx(200 + waits + closing)
    assert found.share == pytest.approx(200 / found.seconds)


def test_slow_link_gets_lower_compression_level() -> None:
    plain = spec("default")
    slow, fast = (round_time(plain, 8, 30.0, Link(100.0, up, 0.08)).up_bytes for up in (20.0, 2000.0))
    sent = replace(plain, training=replace(plain.training, top_k=top_k_levels(plain)[-1]))
    assert slow == round_time(sent, 8, 30.0, Link(100.0, 2000.0, 0.08)).up_bytes < fast / 7


@pytest.mark.parametrize("method", ["slow_links", "default", "sparseloco", "diloco"])
@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize("compute", [2.0, 20.0, 200.0])
@pytest.mark.parametrize("nodes", [2, 16])
def test_round_time_matches_simulation_of_equal_nodes(method: str, delay: int, compute: float, nodes: int) -> None:
    job = spec(method, round_delay=delay)
    expected = round_time(job, nodes, compute, SLOW)
    work = Work(
        compute=compute,
        encode=ENCODE * SIZE,
        payload=expected.up_bytes,
        update=expected.down_bytes if job.training.down_top_k else 0.0,
        model=4.0 * SIZE,
        slot_state=0.0,
    )
    market = Market(
        admit=CHECK * SIZE, close=expected.closing, round_grace_seconds=600.0, round_deadline_seconds=6000.0
    )
    outcome = simulate(
        Scenario(work, Nodes(nodes, links={SLOW: 1.0}), market, rounds=12, unmeasured=4, round_delay=delay)
    )
    # Where the rest takes longer than the unit, two uploads of a node meet on its link now and then.
    close = 0.07 if expected.rest > expected.node else 0.02
    assert outcome.efficiency == pytest.approx(expected.share, rel=close)
    mean = sum(round_.seconds for round_ in outcome.rounds) / len(outcome.rounds)
    assert mean == pytest.approx(expected.seconds, rel=close)
    assert expected.up_bytes / (SLOW.up_mbps * MBIT) < mean
