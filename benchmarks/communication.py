"""How much loss a thousandth of the traffic costs: eight workers, equal tokens, one model, in a dozen ways.

``python -m benchmarks.communication [--json] [--quick] [--seeds N] [--fresh] [--kept] [--tune]``. A byte model is
trained on the sources of Python's standard library (28 MB, of which a run draws 1.2 MB, so that hardly a token is seen
twice). Loss is in nats per byte on files that neither training nor tuning saw. A ratio is the bytes of dense fp32
gradients at every step over those that one worker sent (up) or fetched (down): whole payloads as they travel, headers
and scales included; for gradients that are averaged at every step, what was handed to all-reduce.

- ``ddp_adamw``, ``ddp_muon``: dense, each with its best rate; ``ddp`` is the better one.
- ``powersgd_1``, ``powersgd_4``: gradients as factors of that rank, torch's own hook.
- ``diloco``: ours, all entries at 8 bits; nodes fetch the whole model.
- ``torchft_diloco``: torchft's, whole fp32 parameters, AdamW inside; needs ``make bench-peers``.
- ``sparseloco``: as published (Sarfi et al., 2025): AdamW, 30 steps a round, 64 of 4,096 entries at 2 bits, outer
  rate 1; every worker fetches the other seven payloads.
- ``default``: the defaults of a training specification.
- ``at_20x`` to ``at_4000x``: our method along the curve.

``default_loss_gap`` and ``at_1000x_loss_gap`` are relative to ``ddp`` of the same seed. ``equal_bytes_deficit`` takes,
for each peer, our best point that sends and fetches no more bytes than it, and is the largest relative loss of these.

An interrupted run goes on where it was: every result is kept in ``.benchmarks/`` by method, settings, seed and version
of the code (``--fresh`` measures again, ``--kept`` reports what is there and measures nothing). ``--tune`` prints
instead the losses of the settings that were tried, on files that no result is reported on.
"""

import hashlib
import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.communication_settings import (
    FULL,
    METHODS,
    OURS,
    PEERS,
    QUICK,
    TRIALS,
    TUNING_SEED,
    Method,
    Scale,
    specification,
)
from benchmarks.corpus import whole_library
from benchmarks.report import Row, print_report, progress, report_options, row
from benchmarks.trainers import TORCHFT_PYTHON, Outcome, by_rounds, by_steps, by_torchft
from training_gym.data.dataset import Tokens
from training_gym.errors import TrainingDiverged

ROOT = Path(__file__).parents[1]
KEPT = ROOT / ".benchmarks" / "communication.jsonl"
PLOT = ROOT / "benchmarks" / "communication.png"


class Kept:
    """The results of earlier runs of the same code, one JSON line each; an interrupted run goes on from them."""

    def __init__(self, path: Path | None, only: bool = False) -> None:
        """Without a path nothing is looked up or kept; with ``only`` nothing else is given."""
        self._path, self._only, self.found = path, only, 0
        lines = path.read_text().splitlines() if path and path.exists() else []
        self._outcomes = {line["key"]: line["outcome"] for line in map(json.loads, lines)}

    def outcome(self, name: str, identity: Mapping[str, object], work: Callable[[], Outcome | None]) -> Outcome | None:
        """The kept outcome of the run that ``identity`` determines, or that of ``work``."""
        key = hashlib.sha256(json.dumps([_code_version(), identity], sort_keys=True).encode()).hexdigest()
        if key in self._outcomes:
            self.found += 1
            return Outcome(**self._outcomes[key])
        if self._only:
            return None
        started = time.perf_counter()
        outcome = work()
        progress(f"{name}: {outcome} in {time.perf_counter() - started:.0f} s")
        if self._path and outcome:
            self._path.parent.mkdir(exist_ok=True)
            with self._path.open("a") as file:
                file.write(json.dumps({"name": name, "key": key, "outcome": asdict(outcome)}) + "\n")
        return outcome


def _code_version() -> str:
    """Digest of the code that trains. ``config`` is left out: every setting is part of a run's identity."""
    files = [path for path in (ROOT / "training_gym").rglob("*.py") if path.name != "config.py"]
    files += [ROOT / "benchmarks" / "trainers.py", ROOT / "benchmarks" / "peers" / "torchft_diloco.py"]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(files))).hexdigest()


def train(method: Method, scale: Scale, seed: int, tokens: Tokens, held_out: Tokens) -> Outcome | None:
    """One run; None where a peer's environment is missing, infinite loss where training diverged."""
    spec = specification(method, scale, seed)
    try:
        if method.how == "torchft":
            return by_torchft(spec, scale.warmup, tokens, held_out)
        if method.how == "steps":
            return by_steps(spec, tokens, held_out, min(method.processes, scale.most_processes))
        return by_rounds(spec, tokens, held_out, everybody_fetches_all=method.how == "all_gather")
    except TrainingDiverged:
        return Outcome(float("inf"), 1, 1)


def outcomes_of(methods: Mapping[str, Method], scale: Scale, seed: int, split: str, kept: Kept) -> dict[str, Outcome]:
    """The outcome of every method on one seed, evaluated on the files of ``split``."""
    tokens, tuning, validation = whole_library()
    held_out = {"tuning": tuning, "validation": validation}[split]
    found = {}
    for name, method in methods.items():
        spec = specification(method, scale, seed).to_dict()
        identity = {"how": method.how, "processes": method.processes, "spec": spec, "split": split}

        def work(method: Method = method) -> Outcome | None:
            return train(method, scale, seed, tokens, held_out)

        outcome = kept.outcome(f"{name}, seed {seed}", identity, work)
        if outcome is not None:
            found[name] = outcome
    return found


def dense_bytes(scale: Scale) -> int:
    """What one worker sends and fetches if gradients travel whole, in fp32, at every step."""
    spec = specification(METHODS["ddp_adamw"], scale, 0)
    return 4 * spec.num_parameters() * scale.steps


def rows_of(seeds: Sequence[dict[str, Outcome]], unit: int) -> list[Row]:
    """The rows from the outcomes by method of each seed; ``unit`` is :func:`dense_bytes`."""
    for found in seeds:
        found["ddp"] = min(found["ddp_adamw"], found["ddp_muon"], key=lambda outcome: outcome.loss)
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
        gaps = [found[name].loss / found["ddp"].loss - 1 for found in seeds if name in found]
        rows.append(row(f"{name}_loss_gap", "share", gaps, "of ddp's loss"))
    deficits = [equal_bytes_deficit(found) for found in seeds]
    worst = deficits[0][1]
    rows.append(
        row("equal_bytes_deficit", "share", [deficit for deficit, _ in deficits], f"first seed's against {worst}")
    )
    return rows


def equal_bytes_deficit(found: Mapping[str, Outcome]) -> tuple[float, str]:
    """The largest relative loss of our best point against a peer that sends and fetches no less, and that peer."""
    ours, deficits = [found[name] for name in OURS if name in found], []
    for name, peer in ((name, found[name]) for name in PEERS if name in found):
        cheaper = [point.loss for point in ours if point.up <= peer.up and point.down <= peer.down]
        if cheaper:
            deficits.append((min(cheaper) / peer.loss - 1, name))
    return max(deficits)


def main() -> None:
    options = report_options("communication")
    options.add_argument("--seeds", type=int, default=3, help="how many seeds (3)")
    options.add_argument("--fresh", action="store_true", help="measure again what is kept from earlier runs")
    options.add_argument("--kept", action="store_true", help="report what is kept, and measure nothing")
    options.add_argument("--tune", action="store_true", help="print what was tried to find the settings")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    started = time.perf_counter()
    scale = QUICK if chosen.quick else FULL
    if chosen.fresh:
        KEPT.unlink(missing_ok=True)
    kept = Kept(None if chosen.quick else KEPT, chosen.kept)
    unit = dense_bytes(scale)
    if chosen.tune:
        print("| trial | loss | times fewer bytes up | down |\n|---|---|---|---|")
        for name, outcome in outcomes_of(TRIALS, scale, TUNING_SEED, "tuning", kept).items():
            print(
                f"| {name} | {outcome.loss:.4f} | {unit / outcome.up:,.0f} | {unit / outcome.down:,.0f} |", flush=True
            )
        return
    count = 1 if chosen.quick else chosen.seeds
    rows = rows_of([outcomes_of(METHODS, scale, seed, "validation", kept) for seed in range(1, count + 1)], unit)
    note = f"of {count * len(METHODS)}, measured by earlier runs of the same code"
    rows.append(row("kept_results", "runs", [kept.found], note))
    print_report("communication", rows, time.perf_counter() - started, chosen.json)
    if not chosen.quick and TORCHFT_PYTHON.exists():
        plot(rows)


def plot(rows: Sequence[Row]) -> None:
    """Draw the curve, in the environment that has what it takes."""
    report = json.dumps({"rows": [asdict(found) for found in rows]})
    command = [str(TORCHFT_PYTHON), "-m", "benchmarks.peers.plot_communication", str(PLOT)]
    subprocess.run(command, input=report, text=True, check=True, cwd=ROOT)


if __name__ == "__main__":
    main()
