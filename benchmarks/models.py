"""Units of models of ``transformers`` against plain loops of it, and their replays.

``python -m benchmarks.models [--json] [--quick]``. Every run has a fresh process with one thread, and runs take turns.

- ``unit_ratio``: tokens a second of a unit with its states, digests and payload, to those of a plain loop.
  The loop has the same Llama and batches, and ``torch.optim.AdamW``.
- ``lora_ratio``: the same with LoRA of ``peft`` on every matrix.
- ``peak_memory_ratio``: largest resident memory of the LoRA unit's process to that of the loop's.
- ``unit_copies``: largest resident memory that a unit adds to its process, in copies of the trained parameters.
- ``aggregation_copies``: the most that an aggregation allocates without its decoded payloads, in the same copies.
- ``hash_share``: time of the digests of a unit's states to that of the unit.
- ``hash_gbps_per_core``: bytes of one large tensor digested per second of a core's time.
- ``peak_share_PROFILE_SIZE``: operations a second of a whole unit to those of a large matrix product.
  The note has what an operator sets for a tier. Without a GPU only the CPU's profile has rows.
- ``lora_payload_share``: bytes of the LoRA unit's payload to those of the base's weights.
- ``replay_mismatches`` of ``segments_replayed``: six architectures, whole and LoRA; another process replays.
- ``logits_max_difference``: trained and exported models, loaded by ``from_pretrained``.
- ``process_mismatches``: segments whose ends differ between units of 1, 2 and 4 fresh processes, replicated and
  sharded.
- ``scaling_2``: steps a second of two replicated processes to twice those of one, on one core each.
- ``sft_ratio``: speed of a unit on conversations to that of ``trl``'s trainer on the same batches. This row and
  the next two need ``make bench-peers``.
- ``sft_loss_difference``, ``dpo_loss_difference``: largest relative difference of a batch's loss from ``trl``'s.
- ``data_tokens_ratio``: tokens a second of ``dataset push`` without upload to those of the tokenizer alone.
"""

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, ParamSpec, TypeVar

from benchmarks.report import Row, progress, row, run
from benchmarks.training import data_runs, model_runs, process_runs, profile_speed, tuning_runs, unit_memory
from benchmarks.training.profile_speed import Speed
from training_gym.runtime.profile import CPU, CUDA, ExecutionProfile
from training_gym.spec.adapters import read_adapter
from training_gym.spec.architectures import ARCHITECTURES, ModelConfig, read_model
from training_gym.spec.config import TrainingConfig, TrainingSpec

_ANY_CID = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"
TURNS = 3
"""Pairs of runs of each ratio of training."""
_PROFILES = [
    (CPU, "float32", 256, [(256, 6), (512, 4)]),
    (CUDA, "bfloat16", 2048, [(1024, 16), (2048, 16)]),
]
"""Profile, precision, sequence length, and (width, layers) of the models whose speed is measured."""
_P = ParamSpec("_P")
_T = TypeVar("_T")


def in_fresh_process(work: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
    """Return what ``work`` returns in its own process, with the CPU profile's variables."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments, **named).result()


def specification(model: ModelConfig, is_adapter: bool, **training: Any) -> TrainingSpec:
    """Return the specification of a job that trains ``model``, or an adapter on it, by AdamW."""
    settings = TrainingConfig(optimizer="adamw", learning_rate=1e-3, **training)
    base, adapter = (_ANY_CID, read_adapter({}, model)) if is_adapter else (None, None)
    return TrainingSpec(model, "unused", settings, base=base, adapter=adapter)


def speeds(quick: bool, directory: Path) -> list[Row]:
    """Return the rows of speed and memory, units and loops in turns."""
    size = {"hidden_size": 64, "num_hidden_layers": 2} if quick else {"hidden_size": 256, "num_hidden_layers": 6}
    model = read_model(size | {"sequence_length": 32 if quick else 256, "vocab_size": 4096})
    steps = {"inner_steps": 2, "segment_steps": 1, "batch_size": 2} if quick else {"inner_steps": 20, "batch_size": 8}
    rows = []
    for name, is_adapter in (("unit", False), ("lora", True)):
        spec = specification(model, is_adapter, **steps)
        base = directory / name
        in_fresh_process(model_runs.write_base, spec, base)
        ratios, memory = [], []
        for turn in range(1 if quick else TURNS):
            ours = in_fresh_process(model_runs.train_unit, spec, base)
            theirs = in_fresh_process(model_runs.train_plainly, spec, base)
            progress(f"{name} {turn}: {ours}, loop {theirs}")
            ratios.append(ours.tokens_per_second / theirs.tokens_per_second)
            memory.append(ours.peak_bytes / theirs.peak_bytes)
        rows.append(row(f"{name}_ratio", "ratio", ratios, f"{spec.num_parameters():,} parameters trained"))
        if is_adapter:
            rows.append(row("peak_memory_ratio", "ratio", memory, "whole processes"))
    return rows


def memory(quick: bool, directory: Path) -> list[Row]:
    """Return the rows of a unit's memory and of the digests of its states."""
    sizes = {"num_hidden_layers": 4, "num_attention_heads": 4, "sequence_length": 16 if quick else 256}
    steps: dict[str, Any] = {"inner_steps": 2, "segment_steps": 1, "batch_size": 1}
    if not quick:
        steps = {"inner_steps": 20, "segment_steps": 5, "batch_size": 8}
    wide, small = (
        specification(read_model(sizes | {"hidden_size": size}), False, **steps) for size in (128 if quick else 512, 32)
    )
    copies, joined, shares = [], [], []
    for turn in range(1 if quick else TURNS):
        progress(f"memory of a unit, {turn + 1}")
        folder = directory / f"memory-{turn}"
        peaked = replace(wide, training=replace(wide.training, inner_steps=2, segment_steps=1, batch_size=1))
        copies.append(in_fresh_process(unit_memory.unit_copies, peaked, small, folder / "copies"))
        joined.append(in_fresh_process(unit_memory.aggregation_copies, wide, 6))
        shares.append(in_fresh_process(unit_memory.hash_share, wide, folder / "hash"))
    note = f"AdamW, {wide.num_parameters():,} parameters trained"
    return [
        row("unit_copies", "copies", copies, note),
        row("aggregation_copies", "copies", joined, note),
        row("hash_share", "ratio", shares, note),
    ]


def hashing(quick: bool, directory: Path) -> Row:
    """Return the row of the digest of one tensor."""
    size = (1 << 22) + 3 if quick else 1 << 26
    speeds: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(1 if quick else TURNS):
        for threads, found in speeds.items():
            found.append(in_fresh_process(unit_memory.hash_gbps, size, threads, directory))
    two = median(speeds[2])
    note = f"one tensor of {size:,} values; {two:.2f} in two threads: 12 GB on 8 cores in {12 / (8 * two):.2f} s"
    return row("hash_gbps_per_core", "GB/s", speeds[1], note)


def profiles(quick: bool, directory: Path) -> list[Row]:
    """Return the rows of speed per profile and model, on the devices that are here."""
    rows = []
    for profile, precision, length, models in _PROFILES:
        if profile is CUDA and not in_fresh_process(profile_speed.has_gpu):
            continue
        steps = {"inner_steps": 2, "batch_size": 2} if quick else {"inner_steps": 4, "batch_size": 8}
        for width, layers in [(64, 2)] if quick else models:
            size = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": max(4, width // 64)}
            model = read_model(size | {"sequence_length": 32 if quick else length, "vocab_size": 4096})
            spec = specification(model, False, precision=precision, segment_steps=2, **steps)
            turns = range(1 if quick else TURNS)
            speeds = [in_fresh_process(profile_speed.unit_speed, profile, spec, directory) for _ in turns]
            rows.append(_peak_share(profile, spec, speeds))
    return rows


def _peak_share(profile: ExecutionProfile, spec: TrainingSpec, speeds: Sequence[Speed]) -> Row:
    shares = [speed.peak_share for speed in speeds]
    tokens, peak = (median(getattr(speed, name) for speed in speeds) for name in ("tokens", "peak_flops"))
    parameters = f"{spec.num_parameters() / 1e6:.0f}m"
    note = (
        f"{parameters} parameters: {tokens:,.0f} tokens/s; peak_flops_per_gpu.{spec.training.precision} {peak:.3g}, "
        f"reference_share_bps {median(shares) * 10_000:,.0f}"
    )
    progress(f"{profile.name}: {note}")
    return row(f"peak_share_{profile.name}_{parameters}", "share", shares, note)


def replays(quick: bool, directory: Path) -> list[Row]:
    """Return the rows of replays, payload and exported logits, over all architectures."""
    mismatches, segments, share, differences = 0, 0, [], []
    for architecture in ("llama",) if quick else ARCHITECTURES:
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "sequence_length": 32}
        model = read_model(sizes | {"architecture": architecture, "vocab_size": 256})
        for is_adapter in (False, True):
            steps = 3 if quick else 17
            spec = specification(model, is_adapter, inner_steps=steps, segment_steps=1, batch_size=2)
            base, workdir = directory / architecture, directory / f"{architecture}-{is_adapter}"
            workdir.mkdir()
            in_fresh_process(model_runs.write_base, spec, base)
            leaves, payload = in_fresh_process(model_runs.commit, spec, base, workdir, 1)
            mismatches += in_fresh_process(model_runs.replayed, spec, base, workdir, 1, leaves)
            segments += spec.segments
            if is_adapter:
                share.append(payload / (base / "model.safetensors").stat().st_size)
            else:
                differences.append(in_fresh_process(model_runs.logits_difference, spec, directory / "exported"))
            progress(f"{architecture}, adapter {is_adapter}: {mismatches} of {segments} segments differ")
    return [
        row("replay_mismatches", "segments", [mismatches], "six architectures, whole and LoRA"),
        row("segments_replayed", "segments", [segments]),
        row("lora_payload_share", "share", share, "of the bytes of the base's weights"),
        row("logits_max_difference", "logits", differences, "after export and from_pretrained"),
    ]


def processes(quick: bool) -> list[Row]:
    """Return the rows of units on several processes."""
    mismatches, segments = 0, 0
    steps = {"inner_steps": 2 if quick else 8, "segment_steps": 1, "batch_size": 4, "gradient_shards": 4}
    for architecture in ("llama",) if quick else ("llama", "qwen3"):
        size = {"hidden_size": 64, "num_hidden_layers": 2, "sequence_length": 32, "vocab_size": 4096}
        spec = specification(read_model(size | {"architecture": architecture}), False, **steps)
        alone = process_runs.train_in(spec, 1, False).leaves
        groups = [(2, False)] if quick else [(1, False), (2, False), (4, False), (2, True), (4, True)]
        for count, is_sharded in groups:
            leaves = process_runs.train_in(spec, count, is_sharded).leaves
            mismatches += sum(one != other for one, other in zip(alone[1:], leaves[1:], strict=True))
            segments += spec.segments
            progress(f"{architecture}, {count} processes, sharded {is_sharded}: {mismatches} of {segments} differ")
    return [row("process_mismatches", "segments", [mismatches], f"{segments} segments"), _scaling(quick)]


def _scaling(quick: bool) -> Row:
    size = {"hidden_size": 64, "num_hidden_layers": 2} if quick else {"hidden_size": 256, "num_hidden_layers": 6}
    model = read_model(size | {"sequence_length": 32 if quick else 256, "vocab_size": 4096})
    steps = {"inner_steps": 3 if quick else 8, "segment_steps": 3 if quick else 8, "batch_size": 8}
    spec = specification(model, False, gradient_shards=2, **steps)
    ratios = []
    for turn in range(1 if quick else TURNS):
        one, two = (process_runs.train_in(spec, count, False).seconds for count in (1, 2))
        progress(f"scaling {turn}: {one:.2f} s in one process, {two:.2f} s in two")
        ratios.append(one / two / 2)
    return row("scaling_2", "ratio", ratios, f"{spec.num_parameters():,} parameters, gloo")


def tuning(quick: bool, directory: Path) -> list[Row]:
    """Return the rows of fine-tuning against ``trl``; none if it is not installed."""
    if lacks():
        return []
    size = {"hidden_size": 64, "num_hidden_layers": 2} if quick else {"hidden_size": 256, "num_hidden_layers": 6}
    model = read_model(size | {"sequence_length": 64 if quick else 256, "vocab_size": 4096})
    steps = {"inner_steps": 2, "segment_steps": 1, "batch_size": 2} if quick else {"inner_steps": 20, "batch_size": 8}
    start, reference = directory / "start", directory / "reference"
    spec = specification(model, False, objective="sft", **steps)
    in_fresh_process(model_runs.write_base, spec, start)
    in_fresh_process(model_runs.write_base, replace(spec, training=replace(spec.training, seed=1)), reference)
    ratios, differences = [], []
    ours = in_fresh_process(tuning_runs.losses, spec, start, reference)
    for turn in range(1 if quick else TURNS):
        seconds = in_fresh_process(tuning_runs.unit_seconds, spec, start)
        theirs, their_seconds = tuning_runs.peer(spec, start, reference)
        progress(f"sft {turn}: {seconds:.1f} s, trl {their_seconds:.1f} s, losses {ours[:2]}, trl {theirs[:2]}")
        ratios.append(their_seconds / seconds)
        differences.append(_difference(ours, theirs))
    few = specification(model, False, objective="dpo", inner_steps=2, segment_steps=1, batch_size=4, dpo_beta=0.3)
    few = replace(few, base=_ANY_CID)
    ours = in_fresh_process(tuning_runs.losses, few, start, reference)
    theirs, _ = tuning_runs.peer(few, start, reference)
    progress(f"dpo: losses {ours}, trl {theirs}")
    return [
        row("sft_ratio", "ratio", ratios, f"{spec.num_parameters():,} parameters, padded batches, trl's defaults"),
        row("sft_loss_difference", "relative", differences, f"{spec.training.inner_steps} batches"),
        row("dpo_loss_difference", "relative", [_difference(ours, theirs)], "two batches, another model as reference"),
    ]


def _difference(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return max(abs(one / other - 1) for one, other in zip(ours, theirs, strict=True))


def data_speed(quick: bool, directory: Path) -> list[Row]:
    """Return the row of ``dataset push`` and the tokenizer, in turns."""
    in_fresh_process(data_runs.write_text, directory, (1 if quick else 24) << 20)
    ratios = []
    for turn in range(1 if quick else 5):
        ours = in_fresh_process(data_runs.build_speed, directory)
        alone = in_fresh_process(data_runs.tokenizer_speed, directory)
        progress(f"data {turn}: {ours:,.0f} tokens/s, tokenizer alone {alone:,.0f}")
        ratios.append(ours / alone)
    return [row("data_tokens_ratio", "ratio", ratios, "a BPE of 8,192 tokens on the standard library")]


def lacks() -> str:
    """Return what misses without ``trl``."""
    installed = tuning_runs.PEER_PYTHON.exists()
    return "" if installed else "the rows against trl are left out: make bench-peers was not run"


def measure(quick: bool) -> list[Row]:
    """Return all rows."""
    os.environ.update(CUDA.variables)  # started processes inherit them, the CPU's too, before they load torch
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        trained = speeds(quick, folder) + memory(quick, folder) + replays(quick, folder) + processes(quick)
        measured = [hashing(quick, folder), *profiles(quick, folder)]
        return trained + measured + tuning(quick, folder) + data_speed(quick, folder)


if __name__ == "__main__":
    run("models", measure, lacks=lacks)
