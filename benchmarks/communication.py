"""Loss at reduced traffic: eight workers train one model by a dozen methods.

``python -m benchmarks.communication [--json] [--quick] [--seeds N] [--steps N] [--fresh] [--kept] [--tune]
[--part {all,small,realistic}] [--size {core,half,proxy,gpu}] [--only NAME]``.

Small part
----------
A byte model trains on the sources of Python's standard library (28 MB). A run draws 3.1 MB of them, so that few tokens
occur twice. Loss is in nats per byte on files outside training and tuning. A ratio is the bytes of dense fp32 gradients
at every step over the bytes that one worker sent (up) or fetched (down). Payloads count whole, with headers and scales.
For gradients averaged at every step, the input of all-reduce counts.

- ``ddp_adamw``, ``ddp_muon``: dense, each with its best rate; ``ddp`` is the better one.
- ``powersgd_1``, ``powersgd_4``: gradients as factors of that rank, torch's own hook, with the best of their rates.
- ``diloco``: DiLoCo by our library, all entries at 8 bits; nodes fetch the whole model. Its outer rate and momentum are
  the best of nine trials with rounds of 10 steps, as the published ones are for 500.
- ``torchft_diloco``: torchft's, whole fp32 parameters, AdamW inside, the same outer step; needs ``make bench-peers``.
  Without it the deficit covers the other peers, with a note, and the command fails at the end, except with ``--quick``.
- ``sparseloco``: SparseLoCo (Sarfi et al., 2025) with AdamW, 15 steps a round, 2 bits and outer rate 1, but 512 of
  4,096 entries. In 100 rounds the published 64 would send a weight 1.6 times; 512 send it 12 times, as 64 do in
  800 rounds. Every worker fetches the other seven payloads.
- ``default``: the defaults of a training specification.
- ``at_20x`` to ``at_4000x``: our method along the curve.

``default_loss_gap`` and ``at_1000x_loss_gap`` are relative to ``ddp`` of the same seed. ``equal_bytes_deficit``
compares each peer with our best point that sends and fetches no more bytes. It is the largest relative loss of these.

``…_token_factor`` is a method's tokens over those with which dense training reaches the same loss. Dense runs with Muon
of several lengths, each decayed to its own end, give the curve.

An interrupted benchmark continues: ``.benchmarks/`` keeps every result by method, settings, seed and code version.
``--fresh`` measures again; ``--kept`` only reports kept results. One run per core executes at a time (``--processes``);
no result depends on speed. ``--tune`` prints the losses of tried settings, ours and the peers', on files without
reported results. With ``--steps`` all runs have that length, without methods whose rounds do not fit.

Realistic part
--------------
``--part realistic`` trains a Llama of 2.2 million parameters: 2 slots of 4,096 BPE tokens a step, 4.4 million tokens.
The text is Python of the standard library and of some packages. ``--size gpu`` has 30.8 million parameters, 4 slots of
16,384 tokens a step, and 301 million tokens. With two runs at a time, one took 10 to 17 minutes of an H200. Rows start
with ``realistic_`` for the default method; ``at_96x`` and ``at_48x`` have rounds of 10 and 5 steps at 4 bits. Peers
have Muon inside. ``diloco_240x`` has rounds of 54 steps, so it sends 244 times fewer bytes. Token factors come from
dense runs with Muon of three lengths a seed. ``realistic_equal_bytes_deficit`` compares as in the small part.

A run takes 15 minutes of one core, so ``benchmarks/results/realistic.jsonl`` keeps all results. ``--part all``
reports them without measuring. ``benchmarks/realistic/settings.py`` states the version that makes a kept run valid. An
interrupted run continues from its last round. One run executes at a time; ``--only``, once or several times, selects
runs by name.
"""

import argparse
import functools
import hashlib
import json
import multiprocessing
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import grimp
import torch

from benchmarks.realistic.outcomes import KEPT, Outcomes
from benchmarks.realistic.part import found_by_seed, kept_rows, measure, trial_rows, trials_of
from benchmarks.realistic.part import rows_of as realistic_rows_of
from benchmarks.realistic.part import runs_of as realistic_runs
from benchmarks.realistic.settings import SIZES
from benchmarks.report import Row, count, end, json_lines, print_report, progress, report_options, row
from benchmarks.training.communication_settings import (
    FULL,
    METHODS,
    OURS,
    PEERS,
    QUICK,
    TRIALS,
    TUNING_SEED,
    Method,
    Scale,
    dense_lengths,
    fits,
    shortened,
    specification,
)
from benchmarks.training.corpus import whole_library
from benchmarks.training.equal_bytes import equal_bytes_deficit
from benchmarks.training.token_factor import token_factor
from benchmarks.training.trainers import TORCHFT_PYTHON, Outcome, by_rounds, by_steps, by_torchft
from training_gym.spec.errors import TrainingDiverged

ROOT = Path(__file__).parents[1]
OUTCOMES_PATH = ROOT / ".benchmarks" / "communication.jsonl"
PLOT = ROOT / "benchmarks" / "communication.png"
DIVERGED = Outcome(float("inf"), float("inf"), float("inf"))
"""A diverged run counts as saving no bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One method on one seed, evaluated on ``split`` (``tuning`` or ``validation``)."""

    name: str
    method: Method
    scale: Scale
    seed: int
    split: str

    def key(self) -> str:
        """Return digest of everything that determines the outcome."""
        spec = specification(self.method, self.scale, self.seed).to_dict()
        identity = {"how": self.method.how, "spec": spec, "split": self.split}
        return hashlib.sha256(json.dumps([_code_version(), identity], sort_keys=True).encode()).hexdigest()


def runs_of(methods: Mapping[str, Method], scale: Scale, seed: int, split: str) -> list[Run]:
    """Return the runs of those methods whose rounds fit into the scale's steps."""
    return [Run(name, method, scale, seed, split) for name, method in methods.items() if fits(method, scale)]


class OutcomeCache:
    """Outcomes of runs of the same code, as JSON lines; an interrupted benchmark continues."""

    def __init__(self, path: Path | None) -> None:
        """Read the outcomes; without a path there is no lookup or storage."""
        self._path, self.found = path, 0
        lines = json_lines(path) if path else []
        self._outcomes = {line["key"]: Outcome(**line["outcome"]) for line in lines}

    def of(self, run: Run) -> Outcome | None:
        """Return the outcome of an earlier ``run``, and count it in ``found``."""
        outcome = self._outcomes.get(run.key())
        self.found += outcome is not None
        return outcome

    def add(self, run: Run, outcome: Outcome) -> None:
        """Store the outcome of a ``run``."""
        if self._path:
            self._path.parent.mkdir(exist_ok=True)
            with self._path.open("a") as file:
                file.write(json.dumps({"name": run.name, "key": run.key(), "outcome": asdict(outcome)}) + "\n")


@functools.cache
def _code_version() -> str:
    """Return the digest of the trainers' code and imports, without ``config``."""
    graph = grimp.build_graph("benchmarks", "training_gym", cache_dir=None)
    modules = {"benchmarks.training.trainers", *graph.find_upstream_modules("benchmarks.training.trainers")} - {
        "training_gym.spec.config"
    }
    files = [ROOT / (name.replace(".", "/") + ".py") for name in sorted(modules)]
    files.append(ROOT / "benchmarks" / "peers" / "torchft_diloco.py")
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def train(run: Run) -> Outcome | None:
    """Execute one run; None without the peer's environment, :data:`DIVERGED` if it diverged."""
    method, spec = run.method, specification(run.method, run.scale, run.seed)
    tokens, tuning, validation = whole_library()
    held_out = {"tuning": tuning, "validation": validation}[run.split]
    started = time.perf_counter()
    try:
        if method.how == "torchft":
            outcome = by_torchft(spec, run.scale.warmup, tokens, held_out)
        elif method.how == "steps":
            outcome = by_steps(spec, tokens, held_out)
        else:
            outcome = by_rounds(spec, tokens, held_out, all_gather=method.how == "all_gather")
    except TrainingDiverged:
        outcome = DIVERGED
    progress(f"{run.name}, seed {run.seed}: {outcome} in {time.perf_counter() - started:.0f} s")
    return outcome


def outcomes_of(runs: Sequence[Run], kept: OutcomeCache, processes: int) -> dict[Run, Outcome]:
    """Return the outcomes of ``runs``; ``processes`` processes measure missing ones."""
    found = {run: outcome for run in runs if (outcome := kept.of(run)) is not None}
    for run, outcome in _trained([run for run in runs if run not in found], processes):
        if outcome is not None:
            kept.add(run, outcome)
            found[run] = outcome
    return found


def _trained(runs: Sequence[Run], processes: int) -> Iterator[tuple[Run, Outcome | None]]:
    if processes == 1:
        yield from ((run, train(run)) for run in runs)
    if processes < 2:
        return
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        waiting = {pool.submit(train, run): run for run in runs}
        for future in as_completed(waiting):
            yield waiting[future], future.result()


def dense_bytes(scale: Scale) -> int:
    """Return one worker's bytes sent and fetched with whole fp32 gradients at every step."""
    spec = specification(METHODS["ddp_adamw"], scale, 0)
    return 4 * spec.num_parameters() * scale.steps


def rows_of(seeds: Sequence[dict[str, Outcome]], unit: float, dense: Mapping[str, int]) -> list[Row]:
    """Return the rows from the outcomes by name of each seed.

    Args:
        unit: :func:`dense_bytes`.
        dense: steps of the dense runs, by name; without their outcomes there are no token factors.
    """
    for found in seeds:
        both = [found[name] for name in ("ddp_adamw", "ddp_muon") if name in found]
        if both:
            found["ddp"] = min(both, key=lambda outcome: outcome.loss)
    rows = []
    for name in ("ddp", *METHODS):
        measured = [found[name] for found in seeds if name in found]
        if not measured:
            progress(f"{name}: not measured")
            continue
        excluded = sum(outcome.excluded for outcome in measured)
        note = f"{excluded} payloads of honest workers were left out" if excluded else ""
        rows.append(row(f"{name}_loss", "nats per byte", [outcome.loss for outcome in measured], note))
        rows.append(row(f"{name}_up_ratio", "x", [unit / outcome.up for outcome in measured]))
        rows.append(row(f"{name}_down_ratio", "x", [unit / outcome.down for outcome in measured]))
    for name in ("default", "at_1000x"):
        gaps = [found[name].loss / found["ddp"].loss - 1 for found in seeds if {name, "ddp"} <= found.keys()]
        if gaps:
            rows.append(row(f"{name}_loss_gap", "share", gaps, "of ddp's loss"))
    for name in METHODS:
        factors = []
        for found in seeds:
            curve = {steps: found[length].loss for length, steps in dense.items() if length in found}
            if name in found and 0 < len(curve) == len(dense):
                factors.append(token_factor(found[name].loss, curve))
        if factors:
            bounded = max(factors) > 0.999 * max(dense.values()) / min(dense.values())
            note = "at least: the shortest dense run ends lower" if bounded else ""
            rows.append(row(f"{name}_token_factor", "x", factors, note))
    deficits = [deficit for found in seeds if (deficit := equal_bytes_deficit(found, OURS, PEERS))]
    if deficits:
        shares, (worst, *_) = zip(*deficits, strict=True)
        absent = missing_results(seeds)
        note = f"first seed's against {worst}" + (f"; {absent}" if absent else "")
        rows.append(row("equal_bytes_deficit", "share", list(shares), note))
    return rows


def missing_results(seeds: Sequence[Mapping[str, Outcome]]) -> str:
    """Return the peers without an outcome of some seed, and the remedy; empty if complete."""
    names = [name for name in PEERS if any(name not in found for found in seeds)]
    needs_install = names == ["torchft_diloco"] and not TORCHFT_PYTHON.exists()
    remedy = "make bench-peers was not run" if needs_install else "leave out --kept to measure them"
    return f"{', '.join(names)} left out: {remedy}" if names else ""


def main() -> None:
    options = report_options("communication")
    options.add_argument("--seeds", type=count, default=3, help="number of seeds (default: 3)")
    options.add_argument("--processes", type=count, help="number of runs at a time (default: number of cores)")
    options.add_argument("--fresh", action="store_true", help="measure kept results again")
    options.add_argument("--kept", action="store_true", help="report kept results without measuring")
    options.add_argument(
        "--steps", type=count, help="number of steps (default: 1,500), without methods of other rounds"
    )
    options.add_argument("--tune", action="store_true", help="print the losses of tried settings")
    options.add_argument("--part", choices=("all", "small", "realistic"), default="all", help="part to measure")
    options.add_argument(
        "--size", choices=("core", "half", "proxy", "gpu"), default="core", help="size of the realistic part"
    )
    options.add_argument("--only", action="append", help="name of a realistic run to measure; may be repeated")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    started = time.perf_counter()
    if chosen.part == "realistic":
        rows = realistic_rows(chosen)
        print_report("communication", rows, time.perf_counter() - started, chosen.json)
        end("communication", "" if rows else f"{KEPT} has no such runs; leave out --kept to measure them")
        return
    scale = QUICK if chosen.quick else shortened(FULL, chosen.steps or FULL.steps)
    if chosen.fresh:
        OUTCOMES_PATH.unlink(missing_ok=True)
    kept = OutcomeCache(None if chosen.quick else OUTCOMES_PATH)
    processes = 0 if chosen.kept else chosen.processes or len(os.sched_getaffinity(0))
    unit = dense_bytes(scale)
    if chosen.tune:
        trials = runs_of(TRIALS, scale, TUNING_SEED, "tuning")
        found = outcomes_of(trials, kept, processes)
        print("| trial | loss | times fewer bytes up | down |\n|---|---|---|---|")
        for run in trials:
            if run in found:
                loss, up, down = found[run].loss, unit / found[run].up, unit / found[run].down
                print(f"| {run.name} | {loss:.4f} | {up:,.0f} | {down:,.0f} |")
        return
    seeds = range(1, 2 if chosen.quick else chosen.seeds + 1)
    runs = [run for seed in seeds for run in runs_of(METHODS, scale, seed, "validation")]
    runs += [
        Run(name, METHODS["ddp_muon"], replace(scale, steps=steps), seed, "validation")
        for seed in seeds
        for name, steps in list(dense_lengths(scale).items())[:-1]
    ]
    found = outcomes_of(runs, kept, processes)
    by_seed = [{run.name: found[run] for run in found if run.seed == seed} for seed in seeds]
    rows = rows_of(by_seed, unit, dense_lengths(scale))
    if chosen.part == "all" and not chosen.quick:
        rows += kept_rows(SIZES[chosen.size], seeds)
    rows.append(row("kept_results", "runs", [kept.found], f"of {len(runs)}, measured by earlier runs of the same code"))
    print_report("communication", rows, time.perf_counter() - started, chosen.json)
    if not chosen.quick and TORCHFT_PYTHON.exists():
        plot(rows)
    end("communication", "" if chosen.quick else missing_results(by_seed))


def realistic_rows(chosen: argparse.Namespace) -> list[Row]:
    """Return the realistic part's rows, after the missing runs unless ``--kept``."""
    for name in ("fresh", "steps", "processes"):
        if getattr(chosen, name):
            end("communication", f"--{name} is for the small part; leave it out, or --part realistic")
    size, seeds = SIZES["quick" if chosen.quick else chosen.size], range(1, chosen.seeds + 1)
    runs = trials_of(size, len(seeds)) if chosen.tune else realistic_runs(size, [1] if chosen.quick else seeds)
    if chosen.only:
        names = list(dict.fromkeys(run.name for run in runs))
        for name in set(chosen.only) - set(names):
            end("communication", f"--only is {name!r}; expected one of {', '.join(map(repr, names))}")
        runs = [run for run in runs if run.name in chosen.only]
    if chosen.quick:
        with tempfile.TemporaryDirectory() as folder:
            kept = Outcomes(Path(folder) / "kept.jsonl")
            measure(runs, kept, Path(folder))
            return realistic_rows_of(size, found_by_seed(size, [1], kept), "realistic")
    if not chosen.kept:
        if size.device == "cuda" and not torch.cuda.is_available():
            end("communication", f"--size {size.name} needs a CUDA device; with --kept it reports the kept runs")
        measure(runs, Outcomes())
    return trial_rows(runs, Outcomes()) if chosen.tune else kept_rows(size, seeds)


def plot(rows: Sequence[Row]) -> None:
    """Draw the curve, in the environment with the plotting library."""
    report = json.dumps({"rows": [asdict(found) for found in rows]})
    command = [str(TORCHFT_PYTHON), "-m", "benchmarks.peers.plot_communication", str(PLOT)]
    subprocess.run(command, input=report, text=True, check=True, cwd=ROOT)


if __name__ == "__main__":
    main()
