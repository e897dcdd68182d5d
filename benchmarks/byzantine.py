"""Damage by dishonest providers: some of eight workers attack a byte model's training.

``python -m benchmarks.byzantine [--json] [--quick] [--part {all,short,long}] [--seeds N] [--kept]``.

Every honest unit is a real one (``run_unit``), every payload uses the wire format, and ``ours`` is
``training_gym.aggregate.aggregation.aggregate``. Peers are the textbook rules on the decoded vectors, set to expect a
quarter of attackers. A value is the validation loss relative to that of eight honest workers under the plain mean,
minus one. The attackers know every honest payload of the round and collude:

- ``flip``: -5 times the honest mean (sign flip);
- ``alie``: honest mean - 1.5 standard deviations in each coordinate (Baruch et al., 2019);
- ``ipm``: -0.5 times the honest mean (Xie et al., 2019);
- ``noise``: Gaussian, of an honest payload's norm;
- ``mimic``: a copy of the first honest worker's payload (Karimireddy et al., 2022);
- ``stale``: the attacker's own honest payload of the first round, repeated.

These rows use ``SETTINGS``, which is not a job's default. ``default_ATTACK_25_…`` use a job's defaults (Muon, all
entries at 2 bits both ways, rounds of 20 steps), under ours and under the mean. ``four_ATTACK_25_ours`` have four
workers at their defaults (no outer momentum), one of them an attacker, relative to four honest ones.

Long part
---------
``adaptive_25_ours``, ``adaptive_37_ours`` and ``long_ATTACK_25_ours`` are after 200 rounds of 8 steps at the default
method, relative to eight honest workers under ours. So are ``worst_25_ours`` and ``diverged_37_ours``; the short part's
are ``short_worst_25_ours`` and ``short_diverged_37_ours``. In ``flip`` each attacker sends the opposite of its own
honest payload, in ``stale`` its own of the first round. ``four_adaptive_25_ours``, ``four_long_ATTACK_25_ours`` and
``four_worst_25_ours`` have one attacker of four workers at their defaults.

The other attackers know all rules (``robustness/adaptive.py``). Their payloads differ, and hold as much of a
direction as aggregation accepts. In ``adaptive`` it is against the honest mean, which includes IPM, in ``ascent`` the
raw gradient of the loss. Honest payloads of Muon are nearly orthogonal to that. Others have the short part's lie.

``sampled`` is ``ascent`` in the last tenth of the rounds, by nodes of the lowest sampling rate, which state no rise of
the loss. ``late`` begins in the last twentieth. ``quiet`` is as strong as the flag of worse models permits. Two rounds
after a false segment is sampled, an honest node takes the place. The loss of these three is the delivered model's: the
best one's if the final one is worse (``final_loss``). These four at the lowest compression level, as a slow link gets,
are ``ascent_low`` and so on.

``--kept`` reports kept runs without measuring. Runs on another text, as of another Python, are kept apart. An
interrupted run continues from its last tenth round. All losses are of 4,096 windows.
"""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.report import Row, count, end, print_report, progress, report_options, row
from benchmarks.robustness import long_runs
from benchmarks.robustness.kept import ROOT, KeptRuns
from benchmarks.robustness.long_runs import WINDOWS
from benchmarks.training.corpus import standard_library
from benchmarks.training.trainers import next_replica_states, train_unit
from training_gym.aggregate.aggregation import aggregate
from training_gym.aggregate.outer_step import OuterState, initial_outer_state, outer_step
from training_gym.compress.payload_format import decode, encode
from training_gym.data.dataset import one_shard, validation_samples
from training_gym.data.shards import Tokens
from training_gym.evaluate.loss import mean_loss
from training_gym.model.layout import Arrays, initial_parameters
from training_gym.spec.architectures import read_model
from training_gym.spec.config import TrainingConfig, TrainingSpec
from training_gym.spec.defaults import settings_by_size
from training_gym.units.replica_state import fresh_slot_state

MODEL = read_model({"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "sequence_length": 32})
LONG_ROUNDS = 200
KEPT = ROOT / "benchmarks" / "results" / "byzantine.jsonl"
STATES = ROOT / ".benchmarks" / "byzantine"
WORKERS = 8
BAD = {0: 0, 12: 1, 25: 2, 37: 3}
"""Attackers of eight, by the percentage in a row's name."""
ASSUMED_BAD = 2
SETTINGS: dict[str, Any] = {
    "optimizer": "adamw",
    "batch_size": 8,
    "warmup_steps": 2,
    "learning_rate": 1e-2,
    "top_k": 1024,
    "value_bits": 4,
    "outer_learning_rate": 1.0,
    "outer_momentum": 0.0,
    "down_top_k": 0,
}
"""Fixed here, so that changed defaults of a specification do not change the attacks' conditions."""

Wide = NDArray[np.float64]
Attack = Callable[[Wide, np.random.Generator], Wide]


def _noise(honest: Wide, noise: np.random.Generator) -> Wide:
    drawn = noise.standard_normal(len(honest[0]))
    return drawn * float(np.linalg.norm(honest[0]) / np.linalg.norm(drawn))


ATTACKS: dict[str, Attack] = {
    "flip": lambda honest, _: -5 * honest.mean(axis=0),
    "alie": lambda honest, _: honest.mean(axis=0) - 1.5 * honest.std(axis=0),
    "ipm": lambda honest, _: -0.5 * honest.mean(axis=0),
    "noise": _noise,
    "mimic": lambda honest, _: honest[0],
}
"""Lies from all honest payloads of a round."""
NAMES = (*ATTACKS, "stale")


def trimmed_mean(vectors: Wide) -> Wide:
    """Return the coordinatewise mean without the extreme quarters (Yin et al., 2018)."""
    result: Wide = np.sort(vectors, axis=0)[ASSUMED_BAD:-ASSUMED_BAD].mean(axis=0)
    return result


def krum(vectors: Wide) -> Wide:
    """Return the one vector nearest to its neighbours (Blanchard et al., 2017)."""
    result: Wide = vectors[_nearest_to_neighbours(vectors, ASSUMED_BAD)]
    return result


def bulyan(vectors: Wide) -> Wide:
    """Return the coordinatewise mean of Krum's choices near the median (El Mhamdi et al., 2018).

    With eight vectors its guarantee holds for one attacker, so it expects one.
    """
    bad = (len(vectors) - 3) // 4
    left = list(range(len(vectors)))
    chosen = [left.pop(_nearest_to_neighbours(vectors[left], bad)) for _ in range(len(vectors) - 2 * bad)]
    order = np.argsort(np.abs(vectors[chosen] - np.median(vectors[chosen], axis=0)), axis=0)[: len(chosen) - 2 * bad]
    closest: Wide = np.take_along_axis(vectors[chosen], order, axis=0).mean(axis=0)
    return closest


def _nearest_to_neighbours(vectors: Wide, bad: int) -> int:
    distances = np.sort(((vectors[:, None] - vectors[None]) ** 2).sum(axis=-1), axis=1)
    return int(np.argmin(distances[:, 1 : max(2, len(vectors) - bad - 1)].sum(axis=1)))


PEERS: dict[str, Callable[[Wide], Wide]] = {
    "mean": lambda vectors: vectors.mean(axis=0),
    "trimmed": trimmed_mean,
    "krum": krum,
    "bulyan": bulyan,
}


def _next(
    name: str, spec: TrainingSpec, parameters: Arrays, payloads: Mapping[int, bytes], state: OuterState
) -> tuple[Arrays, OuterState, dict[int, str]]:
    """Return parameters and outer state after the round, and the reasons of exclusion by slot."""
    if name == "ours":
        result = aggregate(spec, parameters, payloads, outer_state=state)
        excluded = {slot: verdict.code for slot, verdict in result.verdicts.items() if not verdict.included}
        return result.parameters, result.outer_state, excluded
    aggregated = PEERS[name](_decoded(spec, payloads))
    step = outer_step(spec, parameters, aggregated.astype(np.float32), state)
    return step.parameters, step.state, {}


def _decoded(spec: TrainingSpec, payloads: Mapping[int, bytes]) -> Wide:
    return np.stack([decode(spec, payload).dense().astype(np.float64) for payload in payloads.values()])


def train(
    spec: TrainingSpec, texts: tuple[Tokens, Tokens], attack: str, bad: int, aggregator: str, workers: int = WORKERS
) -> float:
    """Return the validation loss after all rounds, with the last ``bad`` slots attacking."""
    seed = spec.training.seed
    noise = np.random.default_rng(seed)
    parameters, state = initial_parameters(spec), initial_outer_state(spec)
    states = dict.fromkeys(range(workers), fresh_slot_state(spec))
    first: dict[int, bytes] = {}
    restored: set[int] = set()
    for round_ in range(spec.training.rounds):
        payloads, after = {}, {}
        for slot in range(workers):
            if slot < workers - bad or (attack == "stale" and not round_):
                payloads[slot], after[slot] = train_unit(spec, round_, slot, parameters, texts[0], states[slot])
        lie = ATTACKS.get(attack)
        if bad and lie is not None:
            honest = _decoded(spec, payloads)
            for slot in range(workers - bad, workers):
                payloads[slot] = encode(spec, lie(honest, noise).astype(np.float32))
        first = first or payloads
        if attack == "stale":
            payloads |= {slot: first[slot] for slot in range(workers - bad, workers)}
        parameters, state, excluded = _next(aggregator, spec, parameters, payloads, state)
        handed, restored = next_replica_states(spec, after, payloads, excluded, restored)
        states |= handed
    return _loss(spec, parameters, texts[1])


def _loss(spec: TrainingSpec, parameters: Arrays, held_out: Tokens) -> float:
    return mean_loss(spec, parameters, validation_samples(one_shard(spec, held_out), WINDOWS))


def long_part(seeds: int, kept: KeptRuns, rounds: int = LONG_ROUNDS, **settings: Any) -> list[Row]:
    """Return the rows of the long runs, which are measured unless they are kept."""
    rows, texts = [], standard_library(1 << 22)
    for workers in long_runs.ATTACKS:
        specs = [long_runs.spec_of(MODEL, seed, rounds, workers, **settings) for seed in range(1, seeds + 1)]
        rows += long_runs.rows_of(specs, texts, ATTACKS, kept)
    return rows


def short_part(quick: bool) -> list[Row]:
    """Return the rows of every attack, share and aggregator, over three seeds."""
    model, steps = MODEL, 2 if quick else 8
    training = TrainingConfig(rounds=2 if quick else 12, inner_steps=steps, segment_steps=steps, **SETTINGS)
    texts = standard_library(1 << 22)
    attacks, shares = (("flip", "stale"), {25: 2, 37: 3}) if quick else (NAMES, BAD)
    losses: dict[str, list[float]] = {}
    diverged: list[int] = []
    for seed in range(1 if quick else 3):
        spec = TrainingSpec(model, "unused", replace(training, seed=seed), replicas=WORKERS)
        start = _loss(spec, initial_parameters(spec), texts[1])
        honest = {name: train(spec, texts, "flip", 0, name) for name in (*PEERS, "ours")}
        lost = 0
        for attack in attacks:
            for per_cent, bad in shares.items():
                for name in honest:
                    loss = train(spec, texts, attack, bad, name) if bad else honest[name]
                    losses.setdefault(f"{attack}_{per_cent}_{name}", []).append(loss / honest["mean"] - 1)
                    lost += (per_cent, name) == (37, "ours") and not loss < start
            progress(f"seed {seed}: {attack} done")
        diverged.append(lost)
        for name, loss in _by_default(spec, texts, attacks, quick).items():
            losses.setdefault(name, []).append(loss)
        progress(f"seed {seed}: default settings done")
    rows = [row(name, "relative", values) for name, values in losses.items()]
    worst = [max(losses[f"{attack}_25_ours"][seed] for attack in attacks) for seed in range(len(diverged))]
    rows.append(row("short_worst_25_ours", "relative", worst, "the worst attack of each seed"))
    note = f"of {len(attacks)}; ended no better than it started"
    rows.append(row("short_diverged_37_ours", "attacks", diverged, note))
    return rows


def _by_default(
    spec: TrainingSpec, texts: tuple[Tokens, Tokens], attacks: Sequence[str], quick: bool
) -> dict[str, float]:
    training = TrainingConfig(rounds=spec.training.rounds, seed=spec.training.seed)
    short: dict[str, Any] = {"inner_steps": 2, "batch_size": 4} if quick else {}
    rows = {}
    for prefix, workers, names in (("default", WORKERS, ("mean", "ours")), ("four", 4, ("ours",))):
        default = replace(training, **settings_by_size(spec.model, short, workers) | short)
        own = replace(spec, training=replace(default, segment_steps=default.inner_steps), replicas=workers)
        honest = train(own, texts, "flip", 0, "mean", workers)
        for attack in attacks:
            for name in names:
                loss = train(own, texts, attack, workers // 4, name, workers)
                rows[f"{prefix}_{attack}_25_{name}"] = loss / honest - 1
    return rows


def main() -> None:
    options = report_options("byzantine")
    options.add_argument("--part", choices=("all", "short", "long"), default="all", help="part to measure")
    options.add_argument("--seeds", type=count, default=3, help="number of seeds of the long part (default: 3)")
    options.add_argument("--kept", action="store_true", help="report the kept long runs without measuring")
    chosen = options.parse_args()
    if chosen.kept and (chosen.quick or chosen.part == "short"):
        options.error("--kept reports long runs; leave out --quick and --part short")
    torch.set_num_threads(1)
    started, rows = time.perf_counter(), []
    if chosen.part != "long" and not chosen.kept:
        rows += short_part(chosen.quick)
    if chosen.part != "short":
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kept.jsonl" if chosen.quick else KEPT
            kept = KeptRuns(path, Path(folder) if chosen.quick else STATES, can_measure=not chosen.kept)
            if chosen.quick:
                rows += long_part(1, kept, rounds=2, inner_steps=2, segment_steps=2, batch_size=4)
            else:
                rows += long_part(chosen.seeds, kept)
    print_report("byzantine", rows, time.perf_counter() - started, chosen.json)
    end("byzantine", "" if rows else f"{KEPT} has no such runs; leave out --kept to measure them")


if __name__ == "__main__":
    main()
