"""Rates at which consistency statistics flag honest, heterogeneous nodes and attackers.

Eight replicas of a job train real units on real text. Honest nodes differ in three ways at once. All compression levels
occur, two replicas are one and two rounds late, and one reads another kind of text. ``robust.decide`` and
``consistency.outlier_flags`` check every round. Each attack of ``benchmarks.byzantine`` is also checked in place of one
replica, without being aggregated.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from benchmarks.byzantine import ATTACKS
from benchmarks.training.corpus import standard_library
from benchmarks.training.trainers import train_unit
from training_gym.aggregate.aggregation import admit, aggregate, measure_payloads, sketch_seed
from training_gym.aggregate.outer_step import initial_outer_state
from training_gym.aggregate.robust import WEIGHT_ONE, decide
from training_gym.compress.link_adaptation import decode_adapted, top_k_levels, with_top_k
from training_gym.compress.payload_format import encode
from training_gym.data.shards import Tokens
from training_gym.exchange.deadlines import staleness_weight
from training_gym.model.layout import initial_parameters
from training_gym.spec.architectures import read_model
from training_gym.spec.config import TrainingConfig, TrainingSpec
from training_gym.units.replica_state import fresh_slot_state
from training_gym.verify.consistency import Statistics, measure, outlier_flags
from zoo_protocol.hashing import sha256

SLOTS = 8
LEVEL = (0, 0, 0, 1, 2, 3, 0, 0)
"""Compression level of each slot."""
LATE = {1: 1, 4: 2}
"""Lateness in rounds, by slot."""
OTHER_DATA = 7
ATTACKED = 2
FIRST_SEED = 10
"""Seeds 0 and 1 chose the thresholds, so no result uses them."""
MODEL = read_model({"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "sequence_length": 32})


@dataclass
class Findings:
    """Statistics of honest payloads, flags by kind of node, exclusions, noticed attacks."""

    honest: list[Statistics] = field(default_factory=list)
    nodes: Counter[str] = field(default_factory=Counter)
    flagged: Counter[str] = field(default_factory=Counter)
    excluded: Counter[str] = field(default_factory=Counter)
    attacks: Counter[str] = field(default_factory=Counter)
    noticed: Counter[str] = field(default_factory=Counter)


def kind_of(slot: int) -> str:
    """Return the property in which an honest slot differs."""
    if slot == OTHER_DATA:
        return "other data"
    if slot in LATE:
        return f"{LATE[slot]} late"
    return f"level {LEVEL[slot]}"


def simulate(rounds: int, seeds: int) -> Findings:
    """Play ``rounds`` rounds of ``seeds`` jobs."""
    torch.set_num_threads(1)
    found = Findings()
    usual, _ = standard_library(1 << 22)
    other = _other_text(len(usual))
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        training = TrainingConfig(
            rounds=rounds, inner_steps=8, segment_steps=8, batch_size=8, warmup_steps=4, top_k=512, seed=seed
        )
        spec = TrainingSpec(MODEL, "unused", training, replicas=SLOTS)
        for payloads in _rounds(spec, usual, other):
            _check_round(found, spec, payloads, np.random.default_rng(seed))
    return found


def _other_text(size: int) -> Tokens:
    """Return numbers as text, as in data files, which differ from programs."""
    random = np.random.default_rng(0)
    text = " ".join(f"{number:.4f}" for number in random.normal(size=size // 8))
    return np.frombuffer(text.encode(), np.uint8)


def _rounds(spec: TrainingSpec, usual: Tokens, other: Tokens) -> Iterator[dict[int, bytes]]:
    parameters, outer = initial_parameters(spec), initial_outer_state(spec)
    states = dict.fromkeys(range(SLOTS), fresh_slot_state(spec))
    on_the_way: dict[int, list[bytes]] = {slot: [] for slot in range(SLOTS)}
    for round_ in range(spec.training.rounds):
        arrived = {}
        for slot in range(SLOTS):
            adapted = with_top_k(spec, top_k_levels(spec)[LEVEL[slot]])
            text = other if slot == OTHER_DATA else usual
            payload, states[slot] = train_unit(adapted, round_, slot, parameters, text, states[slot])
            on_the_way[slot].append(payload)
            if len(on_the_way[slot]) > LATE.get(slot, 0):
                arrived[slot] = on_the_way[slot].pop(0)
        if round_ > max(LATE.values()):  # from here on every kind of node takes part
            yield arrived
        weights = {slot: staleness_weight(LATE.get(slot, 0)) for slot in arrived}
        aggregated = aggregate(spec, parameters, arrived, weights, outer)
        parameters, outer = aggregated.parameters, aggregated.outer_state


def _check_round(
    found: Findings, spec: TrainingSpec, payloads: Mapping[int, bytes], noise: np.random.Generator
) -> None:
    of_slot, excluded = _checked(spec, payloads)
    for slot, statistics in of_slot.items():
        kind = kind_of(slot)
        found.honest.append(statistics)
        found.nodes[kind] += 1
        found.flagged[kind] += bool(outlier_flags(statistics))
        found.excluded[kind] += slot in excluded
    dense = np.stack([decode_adapted(spec, payload).dense().astype(np.float64) for payload in payloads.values()])
    for name, lie in ATTACKS.items():
        honest = np.delete(dense, list(payloads).index(ATTACKED), axis=0)
        false = encode(spec, lie(honest, noise).astype(np.float32))
        of_attack, out = _checked(spec, {**payloads, ATTACKED: false})
        found.attacks[name] += 1
        found.noticed[name] += bool(outlier_flags(of_attack[ATTACKED])) or ATTACKED in out


def _checked(spec: TrainingSpec, payloads: Mapping[int, bytes]) -> tuple[dict[int, Statistics], set[int]]:
    seed = sketch_seed({slot: sha256(payload) for slot, payload in payloads.items()})
    decoded = {slot: decode_adapted(spec, payload) for slot, payload in payloads.items()}
    last = np.zeros(spec.num_parameters(), np.float32)
    decision = decide(measure_payloads(admit(spec, payloads, last), dict.fromkeys(payloads, WEIGHT_ONE), last, seed))
    return measure(spec, decoded), {slot for slot, verdict in decision.verdicts.items() if not verdict.included}


def spread(findings: Findings) -> dict[str, tuple[float, float]]:
    """Return the smallest and the largest value of each statistic among honest nodes."""
    names = Statistics.__dataclass_fields__
    return {
        name: (min(getattr(one, name) for one in findings.honest), max(getattr(one, name) for one in findings.honest))
        for name in names
    }
