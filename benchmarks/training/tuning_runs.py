"""Runs of ``benchmarks.models`` that fine-tune like ``trl``, each in a fresh process."""

import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch

from benchmarks.training.corpus import standard_library
from benchmarks.training.model_runs import WEIGHTS, ZERO, of_one_step, seconds
from training_gym.data.dataset import Split, one_shard, training_samples
from training_gym.data.samples import IGNORED, Integers, Sample, collate
from training_gym.data.shards import Layout
from training_gym.model.folder import load_files
from training_gym.model.network import Network, base_of, rows_on
from training_gym.runtime.determinism import configure
from training_gym.runtime.profile import CPU
from training_gym.spec.config import TrainingSpec
from training_gym.units.replica_state import fresh_slot_state
from training_gym.units.trace import Unit

ROOT = Path(__file__).resolve().parents[2]
PEER_PYTHON = ROOT / ".peers" / "trl" / "bin" / "python"
_PEER_SCRIPT = ROOT / "benchmarks" / "peers" / "trl_peer.py"
_KINDS = {"sft": "chat", "dpo": "preferences"}


def split_of(spec: TrainingSpec) -> Split:
    """Return prompts with answers, of unequal lengths, from the standard library's sources."""
    kind = _KINDS[spec.training.objective]
    samples = spec.training.inner_steps * spec.training.batch_size
    text, dice = standard_library(1 << 20)[0], np.random.default_rng(0)
    rows, masks, most = [], [], spec.model.sequence_length
    for _ in range(samples):
        prompt, *answers = dice.integers(most // 8, most // 2, 1 + (kind == "preferences") + 1)
        begin = int(dice.integers(0, len(text) - 2 * most))
        for answer in answers:
            start = int(dice.integers(0, len(text) - 2 * most))
            rows.append(np.concatenate([text[begin : begin + prompt], text[start : start + answer]]))
            masks.append(np.arange(prompt + answer) >= prompt)
    offsets = np.cumsum([0, *map(len, rows)]).astype("<u4")
    mask = np.packbits(np.concatenate(masks), bitorder="little")
    content = offsets.tobytes() + np.concatenate(rows).tobytes() + mask.tobytes()
    return one_shard(spec, content, Layout(kind), samples)


def batches_of(spec: TrainingSpec) -> list[list[Sample]]:
    """Return the samples of each inner step."""
    split = split_of(spec)
    return [training_samples(spec, split, 0, 0, step) for step in range(spec.training.inner_steps)]


def unit_seconds(spec: TrainingSpec, start: Path) -> float:
    """Run a whole unit from the model in the folder ``start``."""
    configure(CPU)
    parameters = dict(load_files(spec.model, {WEIGHTS: start / WEIGHTS}))
    one, whole = (
        Unit(of, ZERO, 0, 0, parameters, split_of(of), fresh_slot_state(of), ZERO) for of in (of_one_step(spec), spec)
    )
    seconds(one)
    return seconds(whole)


def losses(spec: TrainingSpec, start: Path, reference: Path) -> list[float]:
    """Return the loss of each batch by the network of units, before training."""
    configure(CPU)
    parameters = dict(load_files(spec.model, {WEIGHTS: start / WEIGHTS}))
    base = base_of(spec.model, {WEIGHTS: reference / WEIGHTS}) if spec.reads_base else None
    network = Network(spec, parameters, "cpu", base)
    with torch.no_grad():
        batches = [rows_on("cpu", collate(samples)) for samples in batches_of(spec)]
        return [network(rows, rows.terms).item() for rows in batches]


def peer(spec: TrainingSpec, start: Path, reference: Path) -> tuple[list[float], float]:
    """Return the losses of the same batches by ``trl``, and the seconds of its training."""
    rows = [row for samples in batches_of(spec) for sample in samples for row in sample]
    training = spec.training
    job = {
        "folder": str(start),
        "reference": str(reference),
        "objective": training.objective,
        "batch_size": training.batch_size,
        "steps": training.inner_steps,
        "learning_rate": training.learning_rate,
        "beta": training.dpo_beta,
        "rows": [
            ([int(row.inputs[0]), *_next_tokens(row.inputs, row.targets)], [0, *(row.targets != IGNORED).astype(int)])
            for row in rows
        ],
    }
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "job.json"
        path.write_text(json.dumps(job, default=int))
        command = [str(PEER_PYTHON), str(_PEER_SCRIPT), str(path)]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        raise RuntimeError(f"trl's run failed: {found.stderr[-2000:]}")
    result = json.loads(found.stdout.splitlines()[-1])
    return result["losses"], result["seconds"]


def _next_tokens(inputs: Integers, targets: Integers) -> list[int]:
    """Return the tokens after the first; the last is a target."""
    return [*map(int, inputs[1:]), int(targets[-1])]
