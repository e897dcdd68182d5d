"""Slow nodes: late payloads of other data and payloads of a slow link are aggregated."""

import numpy as np
import pytest
from kit.training import SMALL, spec_of

from benchmarks.training.trainers import train_unit
from training_gym.aggregate.aggregation import aggregate
from training_gym.aggregate.robust import WEIGHT_ONE
from training_gym.compress.link_adaptation import top_k_levels, with_top_k
from training_gym.data.shards import Tokens
from training_gym.exchange.deadlines import staleness_weight
from training_gym.model.layout import initial_parameters
from training_gym.spec.config import CHUNK
from training_gym.units.replica_state import fresh_slot_state

FRESH, SLOW = range(5), 5


@pytest.fixture(scope="module")
def texts() -> tuple[Tokens, Tokens]:
    usual = b"".join(b"the %d sheep of the zoo count %d times. " % (n % 10, n % 7) for n in range(200))
    numbers = np.random.default_rng(0).normal(size=900)
    other = " ".join(f"{number:.4f}" for number in numbers).encode()
    return np.frombuffer(usual, np.uint8), np.frombuffer(other, np.uint8)


def test_late_payload_of_other_data_is_included(texts: tuple[Tokens, Tokens]) -> None:
    spec = spec_of(SMALL, rounds=4, inner_steps=4, segment_steps=4, batch_size=4)
    parameters, outer = initial_parameters(spec), None
    states = dict.fromkeys([*FRESH, SLOW], fresh_slot_state(spec))
    late = None
    for round_ in range(3):
        sent = {}
        for slot in FRESH:
            sent[slot], states[slot] = train_unit(spec, round_, slot, parameters, texts[0], states[slot])
        weights = dict.fromkeys(sent, WEIGHT_ONE)
        alone = aggregate(spec, parameters, sent, weights, outer)
        if late is not None:
            sent[SLOW], weights[SLOW] = late, staleness_weight(1)
        late, states[SLOW] = train_unit(spec, round_, SLOW, parameters, texts[1], states[SLOW])
        result = aggregate(spec, parameters, sent, weights, outer)
        assert {slot: result.verdicts[slot] for slot in FRESH} == alone.verdicts
        if SLOW in sent:
            assert result.verdicts[SLOW].included
        parameters, outer = result.parameters, result.outer_state


def test_payloads_of_slow_link_are_included(texts: tuple[Tokens, Tokens]) -> None:
    """In the first rounds full payloads lie near each other, and far from one of few entries."""
    spec = spec_of(SMALL, rounds=4, inner_steps=4, segment_steps=4, batch_size=4, top_k=CHUNK, value_bits=2)
    parameters, outer = initial_parameters(spec), None
    levels = {0: CHUNK, 1: CHUNK, 2: top_k_levels(spec)[-1]}
    states = dict.fromkeys(levels, fresh_slot_state(spec))
    for round_ in range(3):
        sent = {}
        for slot, level in levels.items():
            own = with_top_k(spec, level)
            sent[slot], states[slot] = train_unit(own, round_, slot, parameters, texts[0], states[slot])
        result = aggregate(spec, parameters, sent, None, outer)
        assert {verdict.code for verdict in result.verdicts.values()} == {"included"}
        parameters, outer = result.parameters, result.outer_state
