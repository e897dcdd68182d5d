"""Runs of 200 rounds against attacks, at a job's default method."""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.report import Row, progress, row
from benchmarks.robustness.adaptive import Wide, accepted_payloads
from benchmarks.robustness.ascent import ascent
from benchmarks.robustness.kept import KeptRuns
from benchmarks.robustness.sampling import Sampling, losses_of, quiet
from benchmarks.training.trainers import next_replica_states, train_unit
from training_gym.aggregate.aggregation import aggregate
from training_gym.aggregate.outer_step import OuterState, initial_outer_state
from training_gym.compress.link_adaptation import top_k_levels
from training_gym.compress.payload_format import decode, encode
from training_gym.data.dataset import one_shard, validation_samples
from training_gym.data.shards import Tokens
from training_gym.evaluate.loss import mean_loss
from training_gym.model.layout import Arrays, initial_parameters
from training_gym.spec.architectures import ModelConfig
from training_gym.spec.config import TrainingConfig, TrainingSpec
from training_gym.spec.defaults import settings_by_size
from training_gym.units.replica_state import ReplicaState, fresh_slot_state

VERSION = 2
"""Of the rules of training and aggregation; a change that can change a result needs another number."""
TEXT = "a306befbd2bdd4fb"
"""Digest of the text of the runs that the repository keeps. Runs on other text have keys of their own."""
REVISIONS = {"adaptive": 2, "alie": 2, "sampled": 3, "quiet": 2}
"""Of attacks that changed; results of the first revision are kept under the attack's name alone."""
SAMPLED = {"sampled": 0.1, "late": 0.05, "quiet": 0.1}
"""Attacks that the market's replays can end, with the share of the rounds in which they attack, the last ones.

So little training remains to undo them.
"""
LOW = "-low"
"""End of the name of an attack at the lowest compression level, which a node with a slow link gets."""
ALONG_GRADIENT = ("ascent", *SAMPLED)
_NAMES = ("adaptive", "flip", "alie", "mimic", "stale", "noise", *ALONG_GRADIENT)
QUARTER = tuple(f"{name}_25" for name in (*_NAMES, *(name + LOW for name in ALONG_GRADIENT)))
ATTACKS = {
    8: {"none": 0, **dict.fromkeys(QUARTER, 2), "adaptive_37": 3, "ascent_37": 3},
    4: {"none": 0, **dict.fromkeys(QUARTER, 1)},
}
"""Attacks with their number of attackers by the number of workers, in the order of measurement."""
PREFIXES = {8: "", 4: "four_"}
"""Of the names of rows, by the number of workers."""
WINDOWS = 4096
_ROUNDS_PER_STATE = 10
Lie = Callable[[Wide, np.random.Generator], Wide]


@dataclass(slots=True)
class _State:
    parameters: Arrays
    outer: OuterState
    replicas: dict[int, ReplicaState]
    noise: np.random.Generator
    round: int = 0
    restored: set[int] = field(default_factory=set)
    first: dict[int, bytes] = field(default_factory=dict)
    excluded: Counter[str] = field(default_factory=Counter)
    sampling: Sampling = field(default_factory=Sampling)


def spec_of(model: ModelConfig, seed: int, rounds: int, workers: int, **settings: Any) -> TrainingSpec:
    """Return the default method of so many workers, in units of eight steps of eight sequences."""
    steps = {"inner_steps": 8, "segment_steps": 8, "batch_size": 8} | settings_by_size(model, {}, workers) | settings
    return TrainingSpec(model, "unused", TrainingConfig(rounds=rounds, seed=seed, **steps), replicas=workers)


def text_digest(texts: tuple[Tokens, Tokens]) -> str:
    """Return the digest of the training and validation tokens."""
    return hashlib.sha256(b"".join(hashlib.sha256(tokens.tobytes()).digest() for tokens in texts)).hexdigest()[:16]


def identity(spec: TrainingSpec, attack: str, bad: int, text: str) -> dict[str, Any]:
    """Return everything that decides the result of a run; ``text`` only if it is not ``TEXT``."""
    revised = f"{attack}/{REVISIONS[attack]}" if attack in REVISIONS else attack
    run = {"version": VERSION, "attack": revised, "bad": bad, "workers": spec.replicas, "spec": spec.spec_hash()}
    return run if text == TEXT else run | {"text": text}


def train(
    spec: TrainingSpec,
    texts: tuple[Tokens, Tokens],
    attack: str,
    bad: int,
    lies: Mapping[str, Lie],
    kept: KeptRuns,
    text: str | None = None,
) -> float | None:
    """Return the loss after all rounds, the last ``bad`` slots attacking; None if not kept.

    Args:
        text: digest of a kept run's text; None is that of ``texts``.
    """
    run = identity(spec, attack, bad, text or text_digest(texts))
    known = kept.of(run)
    if known is not None or not kept.can_measure:
        return known
    state = kept.state(run) or _State(
        initial_parameters(spec),
        initial_outer_state(spec),
        dict.fromkeys(range(spec.replicas), fresh_slot_state(spec)),
        np.random.default_rng(spec.training.seed),
    )
    honest = range(spec.replicas - bad)
    while state.round < spec.training.rounds:
        _round(spec, state, texts, attack, honest, lies)
        if state.round % _ROUNDS_PER_STATE == 0:
            kept.keep_state(run, state)
    samples = validation_samples(one_shard(spec, texts[1]), WINDOWS)
    loss = mean_loss(spec, state.parameters, samples)
    if attack.removesuffix(LOW) in SAMPLED:
        loss = state.sampling.delivered_loss(spec, loss, samples)
    kept.add(run, loss, seed=spec.training.seed, windows=len(samples), excluded=dict(state.excluded))
    return loss


def _round(
    spec: TrainingSpec,
    state: _State,
    texts: tuple[Tokens, Tokens],
    attack: str,
    honest: Collection[int],
    lies: Mapping[str, Lie],
) -> None:
    honest = [slot for slot in range(spec.replicas) if slot in honest or not _attacks(spec, state, attack, slot)]
    payloads, after = {}, {}
    for slot in range(spec.replicas):
        payloads[slot], after[slot] = train_unit(
            spec, state.round, slot, state.parameters, texts[0], state.replicas[slot]
        )
    own = {slot: payloads.pop(slot) for slot in range(spec.replicas) if slot not in honest}
    state.replicas |= {slot: after.pop(slot) for slot in own}
    state.first = state.first or own
    payloads |= _sent(spec, state, texts, attack, payloads, own, lies)
    result = aggregate(spec, state.parameters, payloads, outer_state=state.outer)
    excluded = {slot: verdict.code for slot, verdict in result.verdicts.items() if not verdict.included}
    state.excluded.update(f"{'honest' if slot in honest else 'bad'} {code}" for slot, code in excluded.items())
    handed, state.restored = next_replica_states(spec, after, payloads, excluded, state.restored)
    state.replicas |= handed
    if attack.removesuffix(LOW) in SAMPLED:
        losses = losses_of(spec, state.parameters, one_shard(spec, texts[1]), own)
        state.sampling.close_round(state.round, state.parameters, losses, own, excluded, state.noise)
    state.parameters, state.outer, state.round = result.parameters, result.outer_state, state.round + 1


def _attacks(spec: TrainingSpec, state: _State, attack: str, slot: int) -> bool:
    """Return True if a dishonest slot's node attacks in this round."""
    rounds, share = spec.training.rounds, SAMPLED.get(attack.removesuffix(LOW), 1)
    return rounds - round(rounds * share) <= state.round < state.sampling.ends.get(slot, rounds)


def _sent(
    spec: TrainingSpec,
    state: _State,
    texts: tuple[Tokens, Tokens],
    attack: str,
    honest: Mapping[int, bytes],
    own: Mapping[int, bytes],
    lies: Mapping[str, Lie],
) -> Mapping[int, bytes]:
    """Return the attackers' payloads in place of their ``own`` honest ones."""
    if not own:
        return {}
    if attack == "stale":
        return state.first
    if attack == "flip":
        return {slot: encode(spec, -decode(spec, payload).dense()) for slot, payload in own.items()}
    vectors = np.stack([decode(spec, payload).dense().astype(np.float64) for payload in honest.values()])
    top_k = top_k_levels(spec)[-1] if attack.endswith(LOW) else None
    attack = attack.removesuffix(LOW)
    if attack in ALONG_GRADIENT:
        direction = ascent(spec, state.parameters, state.outer, vectors, len(own), texts[0])
    else:
        direction = -vectors.mean(axis=0) if attack == "adaptive" else lies[attack](vectors, state.noise)
    sent = accepted_payloads(spec, honest, list(own), state.outer, direction, state.noise, top_k)
    if attack == "quiet":
        return quiet(spec, state.sampling, state.parameters, state.outer, honest, sent, one_shard(spec, texts[1]))
    return sent


def rows_of(
    specs: Sequence[TrainingSpec], texts: tuple[Tokens, Tokens], lies: Mapping[str, Lie], kept: KeptRuns
) -> list[Row]:
    """Return each attack's loss relative to that of honest workers alone, minus one.

    Without the honest run of a seed that seed has no rows. Only seeds with all attacks count for the worst one.

    Args:
        specs: one for each seed, with the same number of workers.
        texts: tokens to train on, and to evaluate on.
        lies: attacks that are not built in, by name.
        kept: earlier results.
    """
    attacks, prefix = ATTACKS[specs[0].replicas], PREFIXES[specs[0].replicas]
    costs: dict[str, list[float]] = {}
    worst: list[float] = []
    diverged: list[int] = []
    own = text_digest(texts)
    for spec in specs:
        is_own = kept.can_measure or kept.of(identity(spec, "none", 0, own)) is not None
        text = own if is_own else TEXT
        samples = validation_samples(one_shard(spec, texts[1]), WINDOWS)
        start, losses = mean_loss(spec, initial_parameters(spec), samples), {}
        for name, bad in attacks.items():
            loss = train(spec, texts, name.partition("_")[0], bad, lies, kept, text)
            if loss is not None:
                progress(f"seed {spec.training.seed}, {spec.training.rounds} rounds, {prefix}{name}: {loss:.4f}")
                losses[name] = loss
        if "none" not in losses:
            continue
        honest = losses.pop("none")
        for name, loss in losses.items():
            costs.setdefault(name, []).append(loss / honest - 1)
        at_25 = [loss / honest - 1 for name, loss in losses.items() if name.endswith("_25")]
        is_complete = len(at_25) == sum(name.endswith("_25") for name in attacks)
        worst += [max(at_25)] if is_complete else []
        at_37 = [loss for name, loss in losses.items() if name.endswith("_37")]
        diverged += [sum(not loss < start for loss in at_37)] if at_37 else []
    rounds = specs[0].training.rounds
    note = f"{rounds} rounds"
    rows = [row(f"{prefix}rounds", "rounds", [rounds])] if costs else []
    rows += [row(f"{prefix}{_row_name(name)}_ours", "relative", values, note) for name, values in costs.items()]
    note_of_worst = f"the worst attack of each seed, {note}"
    rows += [row(f"{prefix}worst_25_ours", "relative", worst, note_of_worst)] if worst else []
    return rows + ([row(f"{prefix}diverged_37_ours", "attacks", diverged, note)] if diverged else [])


def _row_name(attack: str) -> str:
    attack = attack.replace("-", "_")
    return attack if attack.startswith("adaptive") else f"long_{attack}"  # the short part has the name, too
