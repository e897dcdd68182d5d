"""The realistic part of ``benchmarks.communication``: its runs, their order, and the rows."""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.realistic.corpus import read_corpus
from benchmarks.realistic.outcomes import ROOT, Outcomes, Run
from benchmarks.realistic.runs import KeptState, Result, dense, rounds, rounds_without_server
from benchmarks.realistic.settings import DENSE, METHODS, OWN, PEERS, TRIALS, TUNING_SEED, Size, fits, specification
from benchmarks.realistic.trial_runs import growing_rounds, mixed_rounds, overlapped_rounds, rounds_of_shared_moments
from benchmarks.report import Row, progress, row
from benchmarks.training.equal_bytes import equal_bytes_deficit
from benchmarks.training.token_factor import token_factor

TRAIN = {
    "dense": dense,
    "rounds": rounds,
    "all_gather": rounds_without_server,
    "shared_moments": rounds_of_shared_moments,
    "growing": growing_rounds,
    "overlapped": overlapped_rounds,
    "mixed": mixed_rounds,
}
STATES = ROOT / ".benchmarks" / "realistic"
"""Folder of the corpus and of the states of unfinished runs."""


def runs_of(size: Size, seeds: Sequence[int]) -> list[Run]:
    """Return all runs, in the order in which a reader needs them: whole seeds first."""
    return [run for seed in seeds for run in _runs_of_seed(size, seed)]


def _runs_of_seed(size: Size, seed: int) -> Iterator[Run]:
    for name, method in METHODS.items():
        if fits(method, size):
            yield Run(name, method, size, seed)
    for name, steps in reversed(size.dense_steps().items()):
        if steps != size.steps:
            yield Run(name, DENSE, size, seed, steps=steps)


def trials_of(size: Size, seeds: int = 1) -> list[Run]:
    """Return the runs of tried settings, on files without reported results."""
    fitting = {name: method for name, method in TRIALS.items() if fits(method, size)}
    numbers = range(TUNING_SEED, TUNING_SEED + seeds)
    return [Run(name, method, size, seed, "tuning") for seed in numbers for name, method in fitting.items()]


def measure(runs: Sequence[Run], kept: Outcomes, states: Path = STATES) -> None:
    """Train the ``runs`` that have no kept result, one after the other."""
    if not runs:
        return
    size = runs[0].size  # all runs read the same text
    if size.device == "cuda":
        _compile_layers()
    corpus = read_corpus(size.packages, size.max_characters, size.model.vocab_size, states)
    progress(f"corpus {corpus.digest}: {len(corpus.tokens['train']):,} tokens to train on")
    for run in runs:
        if kept.of(run, corpus.digest) is not None:
            continue
        started, spec = time.perf_counter(), specification(run.method, run.size, run.seed, run.steps)
        train = TRAIN[run.method.how]
        state = KeptState(states / f"{run.size.name}-{run.split}-{run.seed}-{run.key()}-{corpus.digest}")
        title = f"{run.name}, seed {run.seed}"
        result = train(spec, corpus, run.split, state, size.device, partial(_note, title))
        kept.add(run, corpus.digest, result)
        state.remove()
        progress(f"{title}: loss {result.loss:.4f} after {time.perf_counter() - started:.0f} s")


def _compile_layers() -> None:
    """Compile the layers of all Llamas in this process.

    Units do not, since their bits would depend on the compiler's choices. No replay checks a benchmark's units.
    """
    import torch
    from transformers.models.llama import modeling_llama

    layer: Any = modeling_llama.LlamaDecoderLayer
    layer.forward = torch.compile(layer.forward, dynamic=False)


def _note(title: str, text: str) -> None:
    progress(f"{title}: {text}")


def found_by_seed(size: Size, seeds: Sequence[int], kept: Outcomes) -> list[dict[str, Result]]:
    """Return the kept results by name of each seed, of the corpus of its longest dense run."""
    found = []
    for seed in seeds:
        runs = list(_runs_of_seed(size, seed))
        dense = [outcome for run in runs if run.method is DENSE and (outcome := kept.of(run)) is not None]
        of_seed = {run.name: kept.of(run, dense[0][1]) for run in runs} if dense else {}
        found.append({name: result[0] for name, result in of_seed.items() if result is not None})
    return found


def kept_rows(size: Size, seeds: Sequence[int]) -> list[Row]:
    """Return the rows of the kept results, none without any."""
    found = found_by_seed(size, seeds, Outcomes())
    prefix = "realistic" if size.name == "core" else f"realistic_{size.name}"
    return rows_of(size, found, prefix) if any(found) else []


def trial_rows(runs: Sequence[Run], kept: Outcomes) -> list[Row]:
    """Return the losses of the trials with kept results, and their bytes."""
    found: dict[str, list[Result]] = {}
    notes = {}
    for run in runs:
        if (outcome := kept.of(run)) is not None:
            result = outcome[0]
            found.setdefault(run.name, []).append(result)
            dense_bytes = 4 * run.size.model.num_parameters() * run.size.steps
            notes[run.name] = (
                f"{dense_bytes / result.up:,.0f} times fewer bytes up, {dense_bytes / result.down:,.0f} down"
            )
    return [row(name, "nats per token", [one.loss for one in results], notes[name]) for name, results in found.items()]


def rows_of(size: Size, seeds: Sequence[Mapping[str, Result]], prefix: str) -> list[Row]:
    """Return the rows of a size from the results by name of each seed."""
    rows = [
        row(f"{prefix}_parameters", "parameters", [size.model.num_parameters()]),
        row(f"{prefix}_tokens", "tokens", [size.tokens], f"{size.slots} slots, {size.steps} steps"),
    ]
    lengths, sent = size.dense_steps(), 4 * size.model.num_parameters() * size.steps
    for name in dict.fromkeys([*METHODS, *lengths]):
        having = [found for found in seeds if name in found]
        if not having:
            progress(f"{prefix}, {name}: not measured")
            continue
        own, results = prefix if name == "ours" else f"{prefix}_{name}", [found[name] for found in having]
        excluded = sum(result.excluded for result in results)
        note = f"{excluded} payloads of honest slots were left out" if excluded else ""
        rows.append(row(f"{own}_loss", "nats per token", [result.loss for result in results], note))
        if name in lengths:
            continue
        gaps = [found[name].loss / found["dense"].loss - 1 for found in having if "dense" in found]
        rows += [row(f"{own}_loss_gap", "share", gaps)] if gaps else []
        rows.append(row(f"{own}_up_ratio", "x", [sent / result.up for result in results]))
        rows.append(row(f"{own}_down_ratio", "x", [sent / result.down for result in results]))
        factors = [factor for found in having if (factor := _token_factor(size, found, found[name].loss))]
        if factors:
            bounded = any(is_bound for _, is_bound in factors)
            rows.append(row(f"{own}_token_factor", "x", [value for value, _ in factors], "at least" if bounded else ""))
    deficits = [deficit for found in seeds if (deficit := equal_bytes_deficit(found, OWN, PEERS))]
    note = f"each seed's against {', '.join(peer for _, peer in deficits)}"
    rows += [row(f"{prefix}_equal_bytes_deficit", "share", [one for one, _ in deficits], note)] if deficits else []
    return rows


def _token_factor(size: Size, found: Mapping[str, Result], loss: float) -> tuple[float, bool] | None:
    """Return the token factor of a ``loss``, and whether the shortest dense run only bounds it.

    None: the seed's dense runs are too short, or there is only the longest.
    """
    curve = {steps: found[name].loss for name, steps in size.dense_steps().items() if name in found}
    if curve.keys() <= {size.steps} or (max(curve) < size.steps and loss < min(curve.values())):
        return None
    return size.steps / max(curve) * token_factor(loss, curve), loss >= max(curve.values())
